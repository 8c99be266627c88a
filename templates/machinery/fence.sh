# --- Fence: no two attempts at once ---------------------------------------------------------------
# An attempt that the scheduler believes lost may still run when the next begins. So each attempt has a file with the
# word live; over or gone (no rank is left) after it has ended; and next after another attempt has begun. This script
# opens it every few seconds, which makes NFS ask its server, and ends the attempt's processes on next; so does a
# process on each node, also on over and gone. All words have one length, so a full disk can take each of them.
castoff_fence_every=5 castoff_fence_due=0 # seconds
castoff_check_fence() { # end this attempt if another has begun: it must not touch the run's files any more
  castoff_fence_due=$((SECONDS + castoff_fence_every))
  if [[ $(cat "$CASTOFF_ATTEMPT_DIR/fence" 2>/dev/null) != next ]]; then return 0; fi
  trap - EXIT # write no records, run no teardown, do not requeue
  trap '' TERM INT HUP USR2
  echo "castoff: another attempt has begun, so attempt $CASTOFF_ATTEMPT ends itself" >&2
  castoff_end_left
  builtin exit 1
}
castoff_end_left() { # end the attempt's processes on this host, also if the launcher lost them, as srun without slurmd
  local castoff_pids castoff_last=$((SECONDS + castoff_fence_every))
  while mapfile -t castoff_pids < <(set +e && castoff_left "$CASTOFF_ATTEMPT_DIR" "$castoff_mark") &&
    ((${#castoff_pids[@]} && SECONDS < castoff_last)); do
    builtin kill -s KILL "${castoff_pids[@]}" 2>/dev/null || true
    read -r -t 0.2 -u 9 _ 9<> <(:) || true
  done
}
castoff_left() { # FOLDER MARK of an attempt: its processes on this host, the ranks' wrappers (record failures) first
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
castoff_guard() { # FOLDER MARK PROCESS: runs on each node; ends the attempt's processes when its fence is not live
  trap '' HUP INT QUIT TERM USR1 USR2
  exec 3<> <(:) # 3 never has input
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
castoff_raise_fence() { # record in the fence that this attempt has ended
  local castoff_word=over
  if [[ $(cat "$CASTOFF_ATTEMPT_DIR/fence" 2>/dev/null) != live ]]; then return 0; fi
  # A launcher that exited by itself with 0 has waited for its ranks.
  if [[ ! -e $CASTOFF_ATTEMPT_DIR/launched || ($castoff_code -eq 0 && -z $castoff_terminated) ]]; then
    castoff_word=gone
#if !nodes !hosts
  elif [[ -z $(castoff_left "$CASTOFF_ATTEMPT_DIR" "$castoff_mark") ]]; then # all ranks were on this host
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
castoff_await_fences() { # wait until earlier attempts have ended or had the time to end themselves
  local castoff_file castoff_word castoff_now castoff_age castoff_left=0 castoff_who=''
  castoff_now=$(stat --format %Y -- "$CASTOFF_ATTEMPT_DIR/start.json") # by the file server's clock
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
  while ((SECONDS < castoff_left)); do read -r -t 1 -u 9 _ || true; done 9<> <(:) # read, so that traps can run
}
#endif
