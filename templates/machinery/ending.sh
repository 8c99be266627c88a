# --- How it ended ---------------------------------------------------------------------------------
castoff_field() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^",}]*\).*/\1/p' "$CASTOFF_FAILURE_FILE"; }
castoff_end() { # the first failure and the program's own word decide; a launcher's exit code may be a victim's
  set +e # a message that a full disk does not take must not become the job's code
  castoff_unset_user_functions
  castoff_run_hooks "${castoff_at_end[@]}"
  castoff_outcome=$(cat "$CASTOFF_OUTCOME_FILE" 2>/dev/null || true)
  castoff_late= # whether it is the walltime that ends this job
  if [[ -n ${CASTOFF_DEADLINE:-} ]] && (($(date +%s) + 15 > CASTOFF_DEADLINE)); then castoff_late=1; fi
  if ((castoff_code != 0)) && [[ -z $castoff_terminated && ! -e $CASTOFF_FAILURE_FILE ]]; then
    castoff_run_hooks "${castoff_on_launcher_failure[@]}"
  fi
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then # an empty one says nothing: the disk was full
    castoff_code=$(castoff_field code)
    castoff_run_hooks "${castoff_at_failure[@]}"
    exit "${castoff_code:-1}"
  fi
  if [[ $castoff_outcome == resume && (-z $castoff_terminated || -n $castoff_late) ]]; then
    if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # castoff stop asked for it; castoff resubmit resumes it
      castoff_ending=resume
      exit 75
    fi
    castoff_run_hooks "${castoff_at_again[@]}"
    castoff_ending=walltime
    exit 75 # EX_TEMPFAIL: it can go on, but nobody starts it again
  fi
  if ((castoff_code == 0)) && [[ $castoff_outcome != 'done' && -z $castoff_terminated ]]; then
    castoff_run_hooks "${castoff_at_success[@]}"
  fi
  if [[ $castoff_outcome == 'done' || (-z $castoff_terminated && $castoff_code -eq 0) ]]; then
    castoff_ending='done'
    exit 0
  fi
  if [[ -n $castoff_terminated ]]; then
    castoff_ending=cancelled
    if [[ -n $castoff_late ]]; then castoff_ending=walltime; fi
    if ((castoff_code == 0)); then castoff_code=143; fi
  fi
  exit "$castoff_code"
}
readonly -f castoff_field castoff_end
