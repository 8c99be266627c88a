# --- Fence: no two attempts at once ---------------------------------------------------------------
# What a scheduler takes for lost may still run when another attempt begins. So each attempt has a file that says
# live; over or gone (no rank is left) once it has ended; and next once another one has begun. This script and one
# process of each node open it every few seconds, whereupon NFS, too, asks its server, and end what belongs to the
# attempt. All words have one length: a full disk takes each of them.
castoff_fence_every=5 castoff_fence_due=0 # seconds
castoff_check_fence() { # whether another attempt has begun, for then nothing of this one may touch what is the run's
  castoff_fence_due=$((SECONDS + castoff_fence_every))
  if [[ $(cat "$CASTOFF_ATTEMPT_DIR/fence" 2>/dev/null) != next ]]; then return 0; fi
  trap - EXIT # no records, no teardown, no requeue
  trap '' TERM INT HUP USR2
  echo "castoff: another attempt has begun, so attempt $CASTOFF_ATTEMPT ends itself" >&2
  castoff_end_left
  builtin exit 1
}
castoff_end_left() { # what this attempt has here, even if its launcher has lost it, as srun does where slurmd is gone
  local castoff_pids castoff_last=$((SECONDS + castoff_fence_every))
  while mapfile -t castoff_pids < <(set +e && castoff_left "$CASTOFF_ATTEMPT_DIR" "$castoff_mark") &&
    ((${#castoff_pids[@]} && SECONDS < castoff_last)); do
    builtin kill -s KILL "${castoff_pids[@]}" 2>/dev/null || true
    read -r -t 0.2 -u 9 _ 9<> <(:) || true
  done
}
castoff_left() { # FOLDER MARK of an attempt: what it has here; first what stands round the ranks and records failures
  {
#if !here !script | torchrun
    grep -lszxF -- "$1/rank.sh" /proc/[0-9]*/cmdline
#endif
#if driver
    grep -lszxF -- "CASTOFF_ATTEMPT_DIR=$1" /proc/[0-9]*/environ | xargs -r grep -lszxF -- "$2"
#elif torchrun
    grep -lszxF -- "CASTOFF_ATTEMPT_DIR=$1" /proc/[0-9]*/environ | xargs -r grep -lszxF -- "$2" |
      xargs -r grep -lsF TORCHELASTIC_RUN_ID
#else
    grep -lszxF -- "CASTOFF_ATTEMPT_DIR=$1" /proc/[0-9]*/environ | xargs -r grep -lszxF -- "$2" |
      xargs -r grep -lsF CASTOFF_RANK=
#endif
  } | cut -d / -f 3
}
#if nodes | hosts
castoff_guard() { # FOLDER MARK PROCESS: one on each node ends what it has there, once its fence says so
  trap '' HUP INT QUIT TERM USR1 USR2
  exec 3<> <(:) # which never says anything
  for castoff_file in /proc/self/fd/*; do ((${castoff_file##*/} < 4)) || eval "exec ${castoff_file##*/}>&-"; done
  while kill -0 "$3" || [[ -n $(castoff_left "$@") ]]; do
    castoff_pause=5
    case $(cat "$1/fence") in
      over | gone | next) castoff_pause=1 && kill -s KILL $(castoff_left "$@") ;;
    esac
    read -r -t "$castoff_pause" -u 3 _
  done
}
#endif
#if attempts
castoff_raise_fence() { # this attempt has ended
  local castoff_word=over
  if [[ $(cat "$CASTOFF_ATTEMPT_DIR/fence" 2>/dev/null) != live ]]; then return 0; fi
  # A launcher that ended by itself, and well, has seen its ranks end.
  if [[ ! -e $CASTOFF_ATTEMPT_DIR/launched || ($castoff_code -eq 0 && -z $castoff_terminated) ]]; then
    castoff_word=gone
#if !nodes !hosts
  elif [[ -z $(castoff_left "$CASTOFF_ATTEMPT_DIR" "$castoff_mark") ]]; then # all of it was on this host
    castoff_word=gone
#else
#ifdef castoff_launcher_has_ended
  elif castoff_launcher_has_ended; then
    castoff_word=gone
#endif
#endif
  fi
  echo "$castoff_word" 1<>"$CASTOFF_ATTEMPT_DIR/fence" || true
}
castoff_await_fences() { # until nothing of earlier attempts runs any more: each has had the time to end itself
  local castoff_file castoff_word castoff_now castoff_age castoff_left=0 castoff_who=''
  castoff_now=$(stat --format %Y -- "$CASTOFF_ATTEMPT_DIR/start.json") # by the clock that dates the others, too
  for castoff_file in "${CASTOFF_ATTEMPT_DIR%.*}".*/fence; do
    castoff_word=$(cat "$castoff_file" 2>/dev/null || true)
    if [[ $castoff_file == "$CASTOFF_ATTEMPT_DIR/fence" || $castoff_word == gone ]]; then continue; fi
    if [[ $castoff_word == live ]]; then echo next 1<>"$castoff_file" || true; fi
    castoff_age=$((castoff_now - $(stat --format %Y -- "$castoff_file")))
    castoff_age=$((2 * castoff_fence_every - (castoff_age > 0 ? castoff_age : 0)))
    if ((castoff_age > castoff_left)); then castoff_left=$castoff_age castoff_who=${castoff_file%/fence}; fi
  done
  if ((castoff_left == 0)); then return 0; fi
  echo "castoff: ranks of attempt ${castoff_who##*.} may still run; within $castoff_left s they end themselves"
  castoff_left=$((SECONDS + castoff_left))
  while ((SECONDS < castoff_left)); do read -r -t 1 -u 9 _ || true; done 9<> <(:) # traps run meanwhile
}
#endif
