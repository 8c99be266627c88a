# Runs a command or a shell next to a rank of a running job, with the rank's environment and in its container.
# bash -c THIS castoff ATTEMPT_DIR RANK RUN [WORD...]; empty RANK: the first rank on this host; no WORD: a shell
set -u
castoff_attempt=$1 castoff_rank=$2 castoff_run=$3
shift 3
castoff_term=${TERM-dumb}
castoff_here=$(hostname)
castoff_say() { echo "castoff: $*" >&2; }
castoff_stat() { # PID FIELD of /proc/PID/stat, from 3: the command's name, field 2, may hold spaces
  local castoff_fields
  castoff_fields=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  read -r -a castoff_fields <<<"${castoff_fields##*) }"
  echo "${castoff_fields[$2 - 3]}"
}
castoff_value() { # PID NAME
  local castoff_entry
  while IFS= read -r -d '' castoff_entry; do
    if [[ $castoff_entry == "$2="* ]]; then
      echo "${castoff_entry#*=}"
      return 0
    fi
  done 2>/dev/null <"/proc/$1/environ"
  return 1
}
castoff_is_of_attempt() { # PID
  [[ -O /proc/$1 ]] && grep -qzxF -- "CASTOFF_ATTEMPT_DIR=$castoff_attempt" "/proc/$1/environ" 2>/dev/null
}
castoff_find() { # the rank's process: the oldest with its RANK, since children inherit RANK
  local castoff_folder castoff_pid castoff_has castoff_since castoff_oldest=0
  castoff_process='' castoff_other=''
  for castoff_folder in /proc/[0-9]*; do
    castoff_pid=${castoff_folder##*/}
    castoff_is_of_attempt "$castoff_pid" || continue
    if ! castoff_has=$(castoff_value "$castoff_pid" RANK) || [[ ! $castoff_has =~ ^[0-9]+$ ]]; then
      castoff_other=${castoff_other:-$castoff_pid}
      continue
    fi
    [[ -z $castoff_rank || $castoff_has == "$castoff_rank" ]] || continue
    castoff_since=$(castoff_stat "$castoff_pid" 22) || continue
    if [[ -z $castoff_process ]] || ((castoff_has < castoff_found)) ||
      ((castoff_has == castoff_found && castoff_since < castoff_oldest)); then
      castoff_process=$castoff_pid castoff_found=$castoff_has castoff_oldest=$castoff_since
    fi
  done
}
castoff_outside() { # PID in a container: its ancestor that started the container
  local castoff_pid=$1
  while castoff_pid=$(castoff_stat "$castoff_pid" 4) && ((castoff_pid > 1)); do
    if castoff_is_of_attempt "$castoff_pid" && ! castoff_value "$castoff_pid" RANK >/dev/null; then
      echo "$castoff_pid"
      return 0
    fi
  done
  return 1
}
castoff_shares() { # NAMESPACE
  local castoff_theirs
  castoff_theirs=$(readlink "/proc/$castoff_process/ns/$1") || return 0
  [[ $castoff_theirs == "$(readlink "/proc/self/ns/$1")" ]]
}
castoff_functions=()
castoff_clear() { # not by <(…): a child ending after the exec below would send the program a CHLD, which ends ps
  local castoff_name
  set -f
  for castoff_name in $(compgen -e); do unset -v "$castoff_name" 2>/dev/null; done
  for castoff_name in $(declare -Fx); do unset -f -- "$castoff_name" 2>/dev/null; done
  set +f
}
castoff_take() { # [PATTERN of names]: export these of castoff_entries, which may hold secrets: not by command line or file
  local castoff_entry castoff_name
  for castoff_entry in "${castoff_entries[@]}"; do
    castoff_name=${castoff_entry%%=*}
    # shellcheck disable=SC2053 # a pattern
    [[ $castoff_name == ${1:-*} ]] || continue
    case $castoff_name in
      BASH_FUNC_*%%) castoff_functions+=("$castoff_entry") ;;
      '' | [0-9]* | *[!A-Za-z0-9_]* | castoff_*) ;;
      *) export "$castoff_entry" 2>/dev/null ;; # some are read-only in bash
    esac
  done
}
castoff_read() { # PID: read its environment into castoff_entries; fails if the process has ended
  mapfile -d '' -t castoff_entries 2>/dev/null <"/proc/$1/environ" && ((${#castoff_entries[@]}))
} 2>/dev/null
for ((castoff_try = 0; castoff_try < 20; castoff_try++)); do # the job script's commands are short-lived
  castoff_find
  if castoff_read "${castoff_process:-${castoff_other:-$$}}"; then break; fi
done
if [[ -z $castoff_process && -n $castoff_rank ]]; then
  castoff_say "$castoff_run: rank $castoff_rank does not run on $castoff_here: it has not started yet, or has ended" \
    "(castoff logs $castoff_run --rank $castoff_rank)"
  exit 1
fi
castoff_word=()
if [[ -z $castoff_process ]]; then
  castoff_say "$castoff_run: no rank runs on $castoff_here now, so this has the environment of the job, not of a rank"
  [[ -z $castoff_other ]] || { castoff_clear && castoff_take; }
  castoff_title="$castoff_run"
else
  castoff_title="$castoff_run rank $castoff_found"
  castoff_folder=$(readlink "/proc/$castoff_process/cwd")
  if [[ -e $castoff_attempt/container.sh ]] && castoff_starter=$(castoff_outside "$castoff_process"); then
    castoff_inside=("${castoff_entries[@]}")
    castoff_read "$castoff_starter"
    castoff_clear
    castoff_take
    castoff_entries=("${castoff_inside[@]}")
    castoff_take '@(RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|NODE_RANK|MASTER_*|CASTOFF_*)'
    castoff_take '@(CUDA_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK)'
    castoff_folder=${CASTOFF_WORKDIR-/}
    castoff_word=(/bin/sh "$castoff_attempt/container.sh")
    CASTOFF_CONTAINER_FLAGS=--interactive
    [[ ! -t 0 ]] || CASTOFF_CONTAINER_FLAGS+=' --tty'
    export CASTOFF_CONTAINER_FLAGS
  else
    # The launcher or the program has made a container; as root, perhaps only a private /tmp.
    if ! castoff_shares user; then
      castoff_word=(--user --preserve-credentials --mount --root)
    elif ! castoff_shares mnt && ((EUID == 0)); then
      castoff_word=(--mount --root)
    fi
    if ((${#castoff_word[@]})); then
      castoff_word=("$(type -P nsenter || echo nsenter)" --target "$castoff_process" "${castoff_word[@]}"
        "--wd=/proc/$castoff_process/cwd" --)
      castoff_folder=/
    fi
    castoff_clear
    castoff_take
  fi
  cd -- "$castoff_folder" 2>/dev/null || castoff_say "the rank's folder is not to be entered: $castoff_folder"
fi
export TERM=$castoff_term # the job has no terminal
if (($# == 0)); then
  # No start-up files, which would change the rank's environment.
  export PS1="[$castoff_title] \h:\w\\$ "
  # shellcheck disable=SC2016 # expanded by that shell
  set -- /bin/sh -c 'command -v bash >/dev/null && exec bash --noprofile --norc -i; exec sh -i'
elif ((${#castoff_word[@]} == 0)) && ! type -P -- "$1" >/dev/null; then
  castoff_say "$1 is not on PATH of $castoff_title on $castoff_here: ${PATH-}"
  exit 127
fi
for castoff_entry in ${castoff_functions[@]+"${castoff_functions[@]}"}; do
  castoff_name=${castoff_entry%%\%\%=*}
  castoff_name=${castoff_name#BASH_FUNC_}
  eval "$castoff_name ${castoff_entry#*=}" 2>/dev/null && export -f "${castoff_name?}"
done
exec ${castoff_word[@]+"${castoff_word[@]}"} "$@"
