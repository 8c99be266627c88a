# --- Hosts: checks which of the job's hosts are fit for ranks -------------------------------------
castoff_fit='' castoff_reason='' castoff_lost='' # fit hosts, one per line, in the job's order
castoff_ask() { # FILE PROGRAM: run PROGRAM on each host of FILE; append its lines with their times to castoff_answers
  local castoff_group castoff_file castoff_asked castoff_missing castoff_number castoff_count castoff_left castoff_size
  castoff_answers=$2.answers
  : >"$castoff_answers"
  castoff_count=$(wc -l <"$1")
  castoff_run_on "$((20 + castoff_count / 50))" "$1" "$2"
  # Then one by one, after groups if many are left: a bad host may keep a launcher from starting anything.
  castoff_left=$((castoff_count + 1)) castoff_size=$castoff_count
  while castoff_missing=$(castoff_missing "$1") && [[ -n $castoff_missing ]] && ((castoff_size > 1)); do
    castoff_count=$(grep -c '' <<<"$castoff_missing")
    castoff_size=$((castoff_count > 64 && castoff_count < castoff_left ? (castoff_count + 15) / 16 : 1))
    castoff_left=$castoff_count castoff_number=0 castoff_asked=()
    while mapfile -t -n "$castoff_size" castoff_group && ((${#castoff_group[@]})); do
      castoff_file=$2.host-$((castoff_number += 1))
      printf '%s\n' "${castoff_group[@]}" >"$castoff_file"
      castoff_run_on "$((15 + castoff_size / 50))" "$castoff_file" "$2" &
      castoff_asked+=("$!")
      if ((castoff_number % 16 == 0)); then castoff_await "${castoff_asked[@]}" && castoff_asked=(); fi
    done <<<"$castoff_missing"
    castoff_await ${castoff_asked[@]+"${castoff_asked[@]}"}
  done
}
castoff_run_on() { # SECONDS FILE PROGRAM
  local castoff_count castoff_line castoff_flags=()
  castoff_count=$(wc -l <"$2")
  {
    castoff_launcher_each "$2" $((castoff_count))
    timeout -k 2 "$1" "${castoff_each_host[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"} \
      "${castoff_run_checked[@]/-ge 60/-ge 10}" "$3" "$2" </dev/null 2>>"$CASTOFF_LOG_DIR/hosts.log" |
      while IFS= read -r castoff_line; do printf '%(%s)T %s\n' -1 "$castoff_line"; done >>"$castoff_answers"
  } 2>>"$CASTOFF_LOG_DIR/hosts.log" & # bash reports in that log if timeout was killed
  castoff_await "$!"
}
castoff_missing() { # FILE: prints its hosts that have not answered
  awk 'FILENAME == ARGV[1] { if (sub(/^[0-9]* answered /, "")) answered[$0]; next } !($0 in answered)' \
    "$castoff_answers" "$1"
}
castoff_await() { # PROCESS...: wait for them, running traps meanwhile
  local castoff_one
  for castoff_one; do
    while builtin kill -0 "$castoff_one" 2>/dev/null; do read -r -t 0.05 -u 9 _ || true; done 9<> <(:)
    builtin wait "$castoff_one" 2>/dev/null || true
  done
}
#if restart | preflight
castoff_find_hosts() { # sets castoff_fit to the fit hosts, on which earlier attempts have been ended
  local castoff_first castoff_time
  castoff_meet_at=
  for castoff_time in first again; do
    castoff_scheduler_hosts | castoff_without_set_aside >"$CASTOFF_ATTEMPT_DIR/candidates"
    castoff_first=$(sed -n 1p "$CASTOFF_ATTEMPT_DIR/candidates")
    castoff_look_at_hosts
    if [[ $castoff_time == again || $castoff_first == "${castoff_fit%%$'\n'*}" ]]; then return; fi
  done
}
castoff_without_set_aside() { # prints the hosts on standard input that this job has not set aside
  local castoff_file castoff_names='' # of the few that are, rather than a question for each of thousands of hosts
  for castoff_file in "$CASTOFF_RUN_DIR"/set-aside/*.json; do
    if castoff_is_set_aside "$castoff_file"; then castoff_names+=${castoff_file##*/}$'\n'; fi
  done
  grep -vxF -e "${castoff_names//.json$'\n'/$'\n'}" || true
}
castoff_is_set_aside() { # RECORD: whether this start of this job wrote it: Slurm may requeue a job days later
  local castoff_in
  if ! grep -qsF "\"job\": \"$castoff_job\"" "$1"; then return 1; fi
  castoff_in=$(sed -n 's/.*"attempt": \([0-9]*\).*/\1/p' "$1")
  ((${castoff_in:-0} >= CASTOFF_ATTEMPT - ${castoff_restarts_done:-0}))
}
castoff_look_at_hosts() {
  local castoff_host castoff_why castoff_hosts=$CASTOFF_ATTEMPT_DIR/candidates
  castoff_fit=
  if [[ ! -s $castoff_hosts ]]; then return; fi
#if preflight nodes
  castoff_know_first_host
#endif
  castoff_write_host
  castoff_ask "$castoff_hosts" "$CASTOFF_ATTEMPT_DIR/host.sh"
  castoff_fit=$(while IFS='|' read -r castoff_host castoff_why; do
    if [[ -z $castoff_why ]]; then echo "$castoff_host"; else castoff_set_aside "$castoff_host" "$castoff_why"; fi
  done < <(castoff_judge_answers))
}
castoff_judge_answers() { # prints each candidate, and after | why it is not fit
  local castoff_first
  castoff_first=$(sed -n 1p "$CASTOFF_ATTEMPT_DIR/candidates")
  awk -v "first=$castoff_first" '
    function field(name, pattern) {
      if (!match($0, "\"" name "\": (\"[^\"]*|[0-9]+)")) return ""
      found = substr($0, RSTART, RLENGTH)
      sub(/^"[^"]*": "?/, "", found)
      return found
    }
    function launchers_words(host, short, at) { # the last launcher line that names the host
      at = last[short] > last[host] ? last[short] : last[host]
      if (at) return " (" said[at] ")"
    }
    FILENAME ~ /hosts.log$/ {
      gsub(/[^ -~]/, "")
      said[++lines] = substr($0, 1, 200)
      for (at = split(said[lines], words, /[^A-Za-z0-9._-]+/); at; at--) last[words[at]] = lines
      if (match($0, /castoff: [^ ]+ does not see /)) { split($0, words, " "); blind[words[2]]; blind[$2] = $0 }
      next
    }
    FILENAME ~ /answers$/ {
      if ($2 != "{\"host\":") next
      host = field("host")
      name[host] = field("name")
      why[host] = field("problem")
      late = $1 - field("time")
      if (why[host] == "" && (late > 3 || late < -3))
        why[host] = "its clock is " (late > 0 ? late " s behind" : -late " s ahead of") " the first host\047s"
      if (why[host] == "" && name[host] in named && named[name[host]] != host)
        why[host] = "it is the same host as " named[name[host]] " (" name[host] " answers for both)"
      else named[name[host]] = host
      next
    }
    { order[++count] = $0 }
    END {
      for (at = 1; at <= count; at++) {
        host = order[at]
        short = host
        sub(/\..*/, "", short)
        if (!(host in why))
          why[host] = short in blind ? "it does not see the run directory" : \
            "it does not answer" launchers_words(host, short)
        if (why[host] ~ /^it does not reach /) cut++
      }
      # If no other host reaches the first host, the first one is at fault.
      if (count > 2 && cut == count - 1 && why[first] == "") {
        for (at = 1; at <= count; at++) why[order[at]] = ""
        why[first] = "no other host of the job reaches it"
      }
      for (at = 1; at <= count; at++) print order[at] "|" why[order[at]]
    }
  ' "$CASTOFF_LOG_DIR/hosts.log" "$castoff_answers" "$CASTOFF_ATTEMPT_DIR/candidates"
}
castoff_set_aside() { # HOST REASON: run no more ranks of this job on it
  echo "castoff: $1 is set aside: $2" >&2
  (
    umask 077
    mkdir -p -- "$CASTOFF_RUN_DIR/set-aside"
    printf '{"host": "%s", "reason": "%s", "attempt": %s, "job": "%s", "time": %s}\n' \
      "$1" "$(castoff_json "${2//[\"\\]/}")" "$CASTOFF_ATTEMPT" "$castoff_job" "$(date +%s)" \
      >"$CASTOFF_RUN_DIR/set-aside/$1.json"
  ) || true
}
castoff_enough_hosts() { # otherwise sets castoff_reason to why this job must end
  local castoff_count
  castoff_count=$(printf '%s' "$castoff_fit" | grep -c '' || true)
  if ((castoff_count >= castoff_nodes)); then return 0; fi
  castoff_reason="$castoff_nodes hosts are needed, and $((castoff_count)) of the job's are fit"
  castoff_reason+=$(castoff_set_aside_words)
  castoff_lost=1
  return 1
}
castoff_set_aside_words() { # prints, say, ": n2 does not answer; n3 …" for this job's hosts
  local castoff_file castoff_words=
  for castoff_file in "$CASTOFF_RUN_DIR"/set-aside/*.json; do
    if castoff_is_set_aside "$castoff_file"; then
      castoff_words+="; $(sed -n 's/^{"host": "\([^"]*\)", "reason": "\([^"]*\)".*/\1: \2/p' "$castoff_file")"
    fi
  done
  printf %s "${castoff_words:+:${castoff_words:1}}"
}
#if spares | preflight
castoff_end_without_hosts() { # called before any rank has started
  echo "castoff: $castoff_reason" >&2
#if restart
  castoff_requeue_due=1 castoff_code=1
  castoff_end_of_restarts
#else
  castoff_ending=node-failure
  exit 1
#endif
}
#endif
#if own_checks
castoff_own_checks=
castoff_own_check() { # LINE of shell that fails on an unfit host
  castoff_own_checks+="castoff_check $(castoff_quoted "$1")"$'\n'
}
#endif
#if preflight nodes
castoff_know_first_host() { # the addresses that other hosts should find for its name, if known on this host
  castoff_meet_at=$(sed -n 1p "$CASTOFF_ATTEMPT_DIR/candidates") castoff_meet_addresses=
  if [[ $(hostname) == "${castoff_meet_at%%.*}" || $(hostname) == "$castoff_meet_at" ]]; then
    castoff_meet_addresses=$(hostname -I 2>/dev/null || true)
  fi
}
#endif
castoff_write_host() { # write host.sh, which on each host ends processes of earlier attempts, and checks the host
  local castoff_attempts=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.
  castoff_write host.sh castoff_attempts castoff_mark castoff_ranks_per_node castoff_launcher_name \
#if preflight
    castoff_host_devices castoff_host_memory castoff_meet_at castoff_meet_addresses castoff_own_checks \
#endif
    <<'CASTOFF_HOST'
castoff_started='' castoff_beside_it='' castoff_node='' # not set by every launcher
castoff_refuse() { echo "castoff: $*" >&2 && exit 1; }
#include launcher
castoff_host=${castoff_node:-$(sed -n "$((castoff_process + 1))p" "$1")}
castoff_say() { # WHY the host is not fit; empty: it is
  castoff_now=$(date +%s)
  printf '{"host": "%s", "name": "%s", "time": %s, "problem": "%s"}\n' "$castoff_host" "$(hostname)" "$castoff_now" \
    "$(printf %.300s "$1" | LC_ALL=C tr -d '"\\\000-\037')"
  echo "answered $castoff_host"
  exit 0
}
castoff_marks=$(echo "$castoff_mark" &&
  sed -n "s/^castoff_mark='\(.*\)' \$/\1/p" "$castoff_attempts"*/rank.sh 2>/dev/null)
castoff_old() { # prints the processes of earlier attempts: their ranks, and the processes around these
  { # grep skips other users' processes, whose environment it cannot read
    grep -lsF -- "$castoff_attempts" /proc/[0-9]*/cmdline | xargs -r grep -lsF -- rank.sh
    grep -lsF -- "CASTOFF_ATTEMPT_DIR=$castoff_attempts" /proc/[0-9]*/environ |
      xargs -r grep -lszxF -- "$castoff_marks" |
#if torchrun
      xargs -r grep -lsF -- TORCHELASTIC_RUN_ID
#else
      xargs -r grep -lsF -- CASTOFF_RANK=
#endif
  } | sed 's#/proc/\([0-9]*\)/.*#\1#' | sort -u | grep -vx "$$"
}
castoff_tries=0
while castoff_pids=$(castoff_old) && [ -n "$castoff_pids" ]; do
  # shellcheck disable=SC2086 # several words
  kill -s KILL $castoff_pids 2>/dev/null
  castoff_tries=$((castoff_tries + 1))
  if [ "$castoff_tries" -gt 100 ]; then
    castoff_states=$(for castoff_pid in $castoff_pids; do
      sed "s/^\([0-9]*\) .*) \(.\) .*/process \1 in state \2/" "/proc/$castoff_pid/stat" 2>/dev/null
    done | tr '\n' ',')
    castoff_say "what an earlier attempt left there does not end: ${castoff_states%,}"
  fi
  sleep 0.1
done
#if preflight
castoff_free() { df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print $4 }'; }
castoff_mib() { echo "$(($1 / 1024)) MiB"; }
#if nodes
castoff_connects() { # ADDRESS: whether its host answers on ports like MASTER_PORT, if only by refusing
  castoff_answer=$(timeout 5 bash -pc ': <>"/dev/tcp/$0/29999"' "$1" 2>&1) && return
  case $castoff_answer in *refused*) return 0 ;; esac
  return 1
}
if [ -n "$castoff_meet_at" ] && [ "$castoff_host" != "$castoff_meet_at" ]; then
  castoff_found=$(timeout 5 getent ahosts "$castoff_meet_at" 2>/dev/null | awk '!seen[$1]++ { printf "%s ", $1 }')
  [ -n "$castoff_found" ] || castoff_found=$(timeout 5 getent ahosts "${castoff_meet_at%%.*}" 2>/dev/null |
    awk '!seen[$1]++ { printf "%s ", $1 }')
  if command -v getent >/dev/null; then
    [ -n "$castoff_found" ] || castoff_say "it knows no address of $castoff_meet_at, the job's first host"
    castoff_known=
    for castoff_address in $castoff_found; do
      case " $castoff_meet_addresses " in *" $castoff_address "*) castoff_known=1 ;; esac
    done
    [ -z "$castoff_meet_addresses" ] || [ -n "$castoff_known" ] || castoff_say \
      "it takes $castoff_meet_at for ${castoff_found% }, and that host has $castoff_meet_addresses (/etc/hosts?)"
  fi
  castoff_reached=
  for castoff_address in ${castoff_found:-"$castoff_meet_at"}; do
    [ -n "$castoff_reached" ] || ! castoff_connects "$castoff_address" || castoff_reached=1
  done
  [ -n "$castoff_reached" ] ||
    castoff_say "it does not reach $castoff_meet_at, the job's first host"
fi
#endif
if [ "$castoff_host_devices" -gt 0 ]; then
  castoff_found=
  if [ -d /proc/driver/nvidia/gpus ]; then
    castoff_found=$(find /proc/driver/nvidia/gpus -mindepth 1 -maxdepth 1 | wc -l)
  elif [ -e /dev/kfd ]; then
    castoff_found=$(cat /sys/class/kfd/kfd/topology/nodes/*/simd_count 2>/dev/null | grep -vcx 0)
  elif [ -d /dev/dri ]; then
    castoff_found=$(($(find /dev/dri -name 'renderD*' | wc -l) * 2)) # each may have two tiles
  fi
  [ "${castoff_found:-$castoff_host_devices}" -ge "$castoff_host_devices" ] ||
    castoff_say "it has $castoff_found devices, and the plan needs $castoff_host_devices"
fi
castoff_found=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
[ "${castoff_found:-$castoff_host_memory}" -ge "$((castoff_host_memory * 8 / 10))" ] ||
  castoff_say "it has $(castoff_mib "$castoff_found") of memory available, and the plan needs \
$(castoff_mib "$castoff_host_memory")"
castoff_room() { # FOLDER KIB
  castoff_found=$(castoff_free "$1")
  [ "${castoff_found:-$2}" -ge "$2" ] ||
    castoff_say "$1 has $(castoff_mib "$castoff_found") free, and $(castoff_mib "$2") are needed"
}
castoff_room /dev/shm "$((castoff_ranks_per_node * 16384))"
castoff_room "${TMPDIR:-/tmp}" 65536
castoff_room "${castoff_attempts%/*}" 65536
#if own_checks
castoff_check() { # LINE: a check from the job file
  castoff_answer=$(timeout 60 sh -c "$1" 2>&1 </dev/null) && return
  castoff_code=$?
  castoff_answer=$(echo "$castoff_answer" | tail -n 1)
  case $castoff_code in
    124) castoff_say "$1 has not ended within 60 s" ;;
    *) castoff_say "$1 failed with code $castoff_code${castoff_answer:+: $castoff_answer}" ;;
  esac
}
eval "$castoff_own_checks"
#endif
#endif
castoff_say ''
CASTOFF_HOST
}
#endif
