# --- Fence: no two attempts at once ---------------------------------------------------------------
# A scheduler that has lost a host may start a job again while ranks of it still run there. So each attempt has a
# file that says live; over or gone (no rank is left) once it has ended; and next once another one has begun.
# This script and one process of each node open it every few seconds, whereupon NFS, too, asks its server, and end
# what belongs to the attempt. All words have one length: a full disk takes each of them.
castoff_fence_every=5 castoff_fence_due=0 # seconds
castoff_read_fence() { # [ATTEMPT's folder]: its word, into castoff_word
  castoff_word=
  { read -r castoff_word <"${1:-$CASTOFF_ATTEMPT_DIR}/fence"; } 2>/dev/null || true
}
castoff_write_fence() { # WORD [ATTEMPT's folder]
  (umask 077 && echo "$1" 1<>"${2:-$CASTOFF_ATTEMPT_DIR}/fence") || true
}
castoff_raise_fence() { # this attempt has ended; a launcher that ended by itself, and well, has seen its ranks end
  local castoff_word castoff_last=gone
  if [[ -e $CASTOFF_ATTEMPT_DIR/launched && ($castoff_code -ne 0 || -n $castoff_terminated) ]]; then
    castoff_last=over
  fi
  castoff_read_fence
  if [[ $castoff_word == live ]]; then castoff_write_fence "$castoff_last"; fi
}
castoff_await_fences() { # until nothing of earlier attempts runs any more: each has had the time to end itself
  local castoff_file castoff_word castoff_now castoff_age castoff_left=0 castoff_who=''
  castoff_now=$(stat --format %Y -- "$CASTOFF_ATTEMPT_DIR/start.json") # by the clock that dates the others, too
  for castoff_file in "${CASTOFF_ATTEMPT_DIR%.*}".*/fence; do
    castoff_read_fence "${castoff_file%/fence}"
    if [[ $castoff_file == "$CASTOFF_ATTEMPT_DIR/fence" || $castoff_word == gone ]]; then continue; fi
    if [[ $castoff_word == live ]]; then castoff_write_fence next "${castoff_file%/fence}"; fi
    castoff_age=$((castoff_now - $(stat --format %Y -- "$castoff_file")))
    castoff_age=$((2 * castoff_fence_every - (castoff_age > 0 ? castoff_age : 0)))
    if ((castoff_age > castoff_left)); then castoff_left=$castoff_age castoff_who=${castoff_file%/fence}; fi
  done
  if ((castoff_left == 0)); then return 0; fi
  echo "castoff: ranks of attempt ${castoff_who##*.} may still run; within $castoff_left s they end themselves"
  castoff_left=$((SECONDS + castoff_left))
  while ((SECONDS < castoff_left)); do read -r -t 1 -u 9 _ || true; done 9<> <(:) # traps run meanwhile
}
castoff_check_fence() { # whether another attempt has begun, for then nothing of this one may touch what is the run's
  local castoff_word
  castoff_fence_due=$((SECONDS + castoff_fence_every))
  castoff_read_fence
  if [[ $castoff_word != next ]]; then return 0; fi
  trap - EXIT # no records, no teardown, no requeue
  trap '' TERM INT HUP USR2
  echo "castoff: another attempt has begun, so attempt $CASTOFF_ATTEMPT ends itself" >&2
  for castoff_word in TERM TERM KILL; do # the second has castoff's own launcher kill its ranks
    builtin kill -s "$castoff_word" "$castoff_launcher" 2>/dev/null || true
    read -r -t 1 -u 9 _ 9<> <(:) || true
  done
  builtin exit 1
}
