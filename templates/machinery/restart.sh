# --- Restarts: a new attempt in the same job after a failure --------------------------------------
castoff_restarts_done= # restarts so far in this job
castoff_has_failed='' castoff_reason='' castoff_requeue_due='' castoff_lost=''
castoff_restart() { # after an attempt: whether a new one begins in this job
  castoff_has_failed='' castoff_reason='' castoff_requeue_due='' castoff_lost='' castoff_what=''
#if setup
  castoff_unset_user_functions
#endif
  if ! castoff_attempt_failed; then return 1; fi
  castoff_launcher= # from now on a signal ends this job
#if !here
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then castoff_show_failure; fi
#endif
#if attempts
  castoff_raise_fence
#endif
#if spares
  castoff_over_since=$SECONDS castoff_suspect=''
#endif
  castoff_judge_progress "$CASTOFF_ATTEMPT"
  if castoff_forbids_restart; then
    echo "castoff: not started again: $castoff_reason" >&2
    return 1
  fi
#if hosts
#if spares
  castoff_suspect_host
#endif
  castoff_find_hosts
#if spares
  # If no rank has failed, the launcher has lost one of these.
  if [[ ! -s $CASTOFF_FAILURE_FILE ]]; then castoff_what+=$(castoff_set_aside_words); fi
#endif
  if ! castoff_enough_hosts; then
    castoff_requeue_due=1
    echo "castoff: not started again: $castoff_reason" >&2
    return 1
  fi
#endif
#if spares
  castoff_await_fence
#endif
#if hang notify
  if [[ -e $CASTOFF_ATTEMPT_DIR/hang ]]; then
    castoff_notify_hang 2>/dev/null &
    disown "$!"
  fi
#endif
  castoff_next_attempt
}
#if spares
castoff_await_fence() { # unreachable ranks end themselves (rank.sh)
  local castoff_lost_hosts castoff_left=$((castoff_over_since + 2 * castoff_fence_every - SECONDS))
  castoff_lost_hosts=$(castoff_missing "$CASTOFF_ATTEMPT_DIR/hosts" | grep -vxF -e "$castoff_suspect" || true)
#if hang
  # If the stacks were collected, the ranks were ended, too.
  castoff_lost_hosts=$(grep -vxF -f <(sed -n 's/^answered //p' "$CASTOFF_ATTEMPT_DIR/stacks" 2>/dev/null || true) \
    <<<"$castoff_lost_hosts" || true)
#endif
  if [[ -n $castoff_lost_hosts ]] && ((castoff_left > 0)); then read -r -t "$castoff_left" -u 9 _ 9<> <(:) || true; fi
}
#endif
castoff_attempt_failed() { # whether it failed, with castoff_code, rather than being asked to end
  local castoff_outcome
  castoff_outcome=$(cat "$CASTOFF_OUTCOME_FILE" 2>/dev/null || true)
  if [[ -n $castoff_terminated || $castoff_outcome == resume ]]; then return 1; fi
#if obeyed
  if castoff_obeyed_signal; then return 1; fi
#endif
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then
    castoff_code=$(castoff_field code)
    castoff_what=$(castoff_failure_words)
#if hang
    if [[ -e $CASTOFF_ATTEMPT_DIR/hang ]]; then castoff_reason=$castoff_what; fi
#endif
#if nodes !driver
  elif [[ -e $CASTOFF_ATTEMPT_DIR/unstarted ]]; then
    castoff_code=1 castoff_reason="not all ranks have started"
#endif
#if here
  elif ((castoff_code != 0 && castoff_code != 74)); then # 74: the ranks succeeded, but a log is incomplete
#else
  elif ((castoff_code != 0)); then
#endif
    castoff_reason="the launcher failed with code $castoff_code"
#if !here
  elif [[ $castoff_outcome != 'done' ]]; then
    castoff_check_success
    if [[ -z $castoff_terminated ]]; then return 1; fi
    castoff_terminated='' castoff_code=1 castoff_reason="the node of rank 0 was lost"
#endif
  else
    return 1
  fi
  castoff_has_failed=1 castoff_code=${castoff_code:-1} castoff_what=${castoff_what:-$castoff_reason}
}
castoff_forbids_restart() { # whether none is allowed; appends the reason to castoff_reason
  local castoff_why='' castoff_left
  castoff_left=$((${CASTOFF_DEADLINE:-0} - $(date +%s)))
#if here
  if [[ -s $CASTOFF_ATTEMPT_DIR/left ]]; then
    castoff_why="KILL does not end what it left on this host: process $(cat "$CASTOFF_ATTEMPT_DIR/left")"
    castoff_lost=1
  elif [[ " $castoff_never " == *" $castoff_code "* ]]; then
#else
  if [[ " $castoff_never " == *" $castoff_code "* ]]; then
#endif
    castoff_why="exit code $castoff_code is among restart.never"
  elif [[ -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_why="castoff stop was called"
#if reported_progress
  elif [[ -z $castoff_best ]] && ((castoff_restarts_done)); then
    castoff_why="the program reports no progress (CASTOFF_PROGRESS_FILE, CASTOFF_METRICS_FILE), so one restart is all"
#endif
  elif ((castoff_stale >= 2)); then
    castoff_why="two attempts in a row failed without progress${castoff_best:+ beyond $castoff_best}"
  elif [[ -n ${CASTOFF_DEADLINE:-} ]] && ((castoff_left <= ${castoff_grace:-0})); then
    castoff_why="$((castoff_left)) s are left of the walltime, and grace is $castoff_grace s"
    castoff_requeue_due=1
  elif [[ -e $CASTOFF_STOP_FILE ]]; then
    castoff_why="it was to stop"
    castoff_requeue_due=1
  elif ((castoff_restarts_done >= castoff_restart_max)); then
    castoff_why="restart.max ($castoff_restart_max) is used up"
    castoff_requeue_due=1
  fi
  if [[ -z $castoff_why ]]; then return 1; fi
  castoff_reason+="${castoff_reason:+; }$castoff_why"
}
#if spares
castoff_suspect_host() { # a host that twice failed first by a signal, if another host can replace it
  local castoff_host castoff_file castoff_count=0 castoff_hosts
  castoff_host=$(castoff_field host 2>/dev/null || true) # empty if the launcher failed, not a rank
  if [[ -z $castoff_host || $(castoff_field signal) != SIG* ]]; then return 0; fi
  for castoff_file in "${CASTOFF_ATTEMPT_DIR%.*}".*/failure.json; do
    if grep -qsF "\"host\": \"$castoff_host\"" "$castoff_file" && grep -qs '"signal": "SIG' "$castoff_file"; then
      castoff_count=$((castoff_count + 1))
    fi
  done
  castoff_hosts=$(castoff_scheduler_hosts | castoff_without_set_aside)
  if ((castoff_count < 2 || $(grep -c '' <<<"$castoff_hosts") <= castoff_nodes)); then return 0; fi
  castoff_host=$(awk -v name="$castoff_host" '{ short = $0; sub(/\..*/, "", short); other = name; sub(/\..*/, "", other)
    if ($0 == name || short == other) { print; exit } }' <<<"$castoff_hosts")
  if [[ -n $castoff_host ]]; then
    castoff_suspect=$castoff_host # its launcher has ended the ranks on it
    castoff_set_aside "$castoff_host" "ranks there were the first to fail, by a signal, twice"
  fi
}
#endif
castoff_next_attempt() {
  local castoff_old=$CASTOFF_ATTEMPT_DIR
  castoff_restarts_done=$((castoff_restarts_done + 1))
  echo "castoff: attempt $CASTOFF_ATTEMPT failed: $castoff_what; attempt $((CASTOFF_ATTEMPT + 1)) begins" \
    "(restart $castoff_restarts_done of $castoff_restart_max)" >&2
  castoff_record_ending failed "$castoff_code" restart
  CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1))
  castoff_begin_records
#if parameters
  castoff_write_parameters
#endif
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then : >>"$CASTOFF_STOP_FILE" || true; fi # the request came before this attempt
  castoff_reason=
#if copy
  if [[ -e $castoff_old/next.json ]]; then mv -- "$castoff_old/next.json" "$CASTOFF_ATTEMPT_DIR/next.json"; fi
#endif
#if container
  cp -p -- "$castoff_old"/{container,inside}.sh "$CASTOFF_ATTEMPT_DIR" 2>/dev/null || true
#endif
#if !here
  castoff_rendezvous "$castoff_suffix"
#endif
#if preload
  castoff_keep_agents "$castoff_old"
#endif
}
castoff_end_of_restarts() { # a failed attempt after which this job does not restart
#if requeue | copy | chain
  if [[ -n $castoff_requeue_due && ! -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_ending=resume
#if teardown
    castoff_tear_down resume 75
#endif
    castoff_start_again
  fi
#endif
  castoff_ending=failed
  if [[ -n $castoff_lost ]]; then castoff_ending=node-failure; fi
  exit $((castoff_code ? castoff_code : 1))
}
#if requeue | copy
castoff_count_requeues() { # prints the number of this submission's jobs so far, not counting the first
  local castoff_number castoff_count=-1
  for ((castoff_number = CASTOFF_FIRST_ATTEMPT; castoff_number <= CASTOFF_ATTEMPT; castoff_number++)); do
    grep -qs '"restart"' "${CASTOFF_ATTEMPT_DIR%.*}.$castoff_number/start.json" || castoff_count=$((castoff_count + 1))
  done
  echo "$castoff_count"
}
#endif
