castoff_start_again() {
  if ((CASTOFF_ATTEMPT - CASTOFF_FIRST_ATTEMPT < castoff_requeue_max)); then
    castoff_record_ending resume "${castoff_resume_code:-0}" # before anything ends this job
    if castoff_requeue; then
      castoff_ending=resume
      exit "${castoff_resume_code:-0}"
    fi
    if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # castoff stop was here meanwhile
      castoff_ending=resume
      exit 75
    fi
    echo "castoff: stopped early, but could not be requeued" >&2
  else
    echo "castoff: stopped early once more, and requeue.max ($castoff_requeue_max) is used up" >&2
  fi
}
castoff_at_again+=(castoff_start_again)
readonly -f castoff_start_again
