# --- A chain: jobs that go on one after the other, submitted beforehand ---------------------------
castoff_check_chain() {
  local castoff_before castoff_last castoff_why=
  if ((!${CASTOFF_CHAIN:-0})); then return 0; fi
  # A later job of the chain: the one before did not exit with 0.
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  castoff_last=$(sed -n 's/.*"ending": *"\([^"]*\)".*/\1/p' "$castoff_before/ending.json" 2>/dev/null || true)
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_why="the run was asked to stop; castoff resubmit restarts it"
  elif ((CASTOFF_ATTEMPT == CASTOFF_FIRST_ATTEMPT)); then
    castoff_why="the job before it never began"
  elif [[ ! $castoff_last =~ ^(resume|walltime|)$ ]]; then # a job that was killed leaves no ending
    castoff_why="attempt $((CASTOFF_ATTEMPT - 1)) has ended: $castoff_last"
  fi
  if [[ -n $castoff_why ]]; then
    echo "castoff: job $CASTOFF_CHAIN of the chain does not begin: $castoff_why"
    exit 0 # so that those that would follow are no longer due
  fi
}
castoff_go_on_in_chain() {
  if ((${CASTOFF_CHAIN:-$castoff_requeue_max} < castoff_requeue_max)); then
    castoff_ending=resume
    exit 75 # not 0: then the chain's next job is due
  fi
  if [[ -n ${CASTOFF_CHAIN:-} ]]; then
    echo "castoff: stopped early once more, and requeue.max ($castoff_requeue_max) is used up" >&2
  else
    echo "castoff: stopped early, and no chain follows: castoff submit sends one" >&2
  fi
}
castoff_at_attempt+=(castoff_check_chain)
castoff_at_again+=(castoff_go_on_in_chain)
readonly -f castoff_check_chain castoff_go_on_in_chain
