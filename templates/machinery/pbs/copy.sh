# --- Going on: PBS starts no job twice, so a copy of this one carries the count on -----------------
castoff_submit_copy() { # SECONDS for an answer, WORDS of qsub; a line with an id is one, whatever qsub's code
  local castoff_names=CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT,CASTOFF_FOLLOWS
  local castoff_said castoff_line castoff_next='' castoff_script=$CASTOFF_RUN_DIR/job.sh
  castoff_names+=${castoff_copied:+,$castoff_copied}
  if [[ ! -e $CASTOFF_RUN_DIR/secrets.sh ]]; then castoff_names+=${castoff_secrets:+,$castoff_secrets}; fi
  castoff_said=$(
    castoff_check_run_directory
    cd "$castoff_submit_dir" &&
      CASTOFF_RUN_DIR=$(castoff_run_dir_for_qsub) CASTOFF_FOLLOWS=$castoff_job \
        CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) \
        timeout -k 1 "$1" qsub -v "$castoff_names" "${@:2}" "$castoff_script"
  ) || true
  while read -r castoff_line; do
    if [[ $castoff_line =~ ^[0-9]+(\[[0-9]*])?\.[A-Za-z0-9._-]+$ ]]; then castoff_next=$castoff_line; fi
  done <<<"$castoff_said"
  if [[ -z $castoff_next ]]; then return 1; fi
  (
    umask 077
    printf '{"job": "%s", "time": %s}\n' "$castoff_next" "$(date +%s)" >"$CASTOFF_ATTEMPT_DIR/.next.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.next.json" "$CASTOFF_ATTEMPT_DIR/next.json"
  ) || echo "castoff: job $castoff_next was submitted, but could not be recorded" >&2
}
castoff_submit_copy_at_last() { # WORDS of qsub: again and again, while there is time
  local castoff_last=$((SECONDS + ${castoff_grace:-120})) castoff_left
  castoff_terminated=
  if [[ -n ${CASTOFF_DEADLINE:-} ]]; then
    castoff_left=$((CASTOFF_DEADLINE - $(date +%s)))
    if ((castoff_left < castoff_last - SECONDS)); then castoff_last=$((SECONDS + castoff_left)); fi
  fi
  while :; do
    castoff_left=$((castoff_last - SECONDS))
    if castoff_submit_copy "$((castoff_left > 5 ? castoff_left : 5))" "$@"; then return 0; fi
    if ((SECONDS >= castoff_last)) || [[ -n $castoff_terminated || -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
    castoff_pause 1
  done
}
castoff_job_of() { # ATTEMPT's folder: the job that it is a start of
  sed -n 's/.*"job": *"\([^"]*\)".*/\1/p' "$1/start.json" 2>/dev/null || true
}
# A qsub without an answer may have submitted a copy all the same, so there may be two: the first that begins
# is the one, and the other ends.
castoff_check_copy() {
  local castoff_before castoff_by castoff_last castoff_why=
  if [[ -z ${CASTOFF_FOLLOWS:-} ]]; then return 0; fi
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  castoff_by=$(castoff_job_of "$castoff_before")
  if [[ $castoff_by == "$castoff_job" ]]; then return 0; fi # PBS starts this very job again
  castoff_last=$(sed -n 's/.*"ending": *"\([^"]*\)".*/\1/p' "$castoff_before/ending.json" 2>/dev/null || true)
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_why="the run was asked to stop; castoff resubmit restarts it"
  elif [[ $castoff_by != "$CASTOFF_FOLLOWS" ]]; then
    castoff_why="another job has begun attempt $((CASTOFF_ATTEMPT - 1)) in its place"
  elif [[ $castoff_last != resume ]]; then
    castoff_why="attempt $((CASTOFF_ATTEMPT - 1)) has ended: ${castoff_last:-it was killed}"
  else
    (set -C && umask 077 && echo "$castoff_job" >"$castoff_before/follower") 2>/dev/null || true
    if [[ $(cat "$castoff_before/follower") != "$castoff_job" ]]; then
      castoff_why="another copy of job $CASTOFF_FOLLOWS has begun"
    fi
  fi
  if [[ -n $castoff_why ]]; then
    echo "castoff: job $castoff_job, a copy of $CASTOFF_FOLLOWS, does not begin: $castoff_why"
    exit 0
  fi
}
castoff_at_attempt+=(castoff_check_copy)
readonly -f castoff_submit_copy castoff_submit_copy_at_last castoff_job_of castoff_check_copy
