castoff_resume_code=75 # not 0: then the copy is due
castoff_copy_words() { # as an array; the copy waits until this job has ended with another code than 0
  castoff_words=(-W "depend=afternotok:$PBS_JOBID" -o "$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log")
}
castoff_submit_copy_beforehand() { # so that this job goes on whatever is wrong with PBS at its end
  local castoff_words castoff_before
  if ((CASTOFF_ATTEMPT - CASTOFF_FIRST_ATTEMPT >= castoff_requeue_max)); then return 0; fi
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  if [[ -e $castoff_before/next.json && $(castoff_job_of "$castoff_before") == "$castoff_job" ]]; then
    cp -- "$castoff_before/next.json" "$CASTOFF_ATTEMPT_DIR/next.json" # PBS has started this job again
    return 0
  fi
  castoff_copy_words
  castoff_submit_copy 30 "${castoff_words[@]}" ||
    echo "castoff: the job that resumes this one could not be submitted yet; it is tried again at the end" >&2
}
castoff_requeue() {
  local castoff_words
  if [[ -e $CASTOFF_ATTEMPT_DIR/next.json ]]; then return 0; fi
  castoff_copy_words
  castoff_submit_copy_at_last "${castoff_words[@]}"
}
castoff_drop_copy() { # PBS itself deletes it after a job that ends with 0
  local castoff_next
  if [[ $castoff_ending == 'done' || ($castoff_ending == resume && ! -e $CASTOFF_RUN_DIR/stop) ]]; then return 0; fi
  castoff_next=$(sed -n 's/.*"job": *"\([^"]*\)".*/\1/p' "$CASTOFF_ATTEMPT_DIR/next.json" 2>/dev/null || true)
  # Where this fails, it begins, sees how this attempt has ended, and ends.
  if [[ -n $castoff_next ]] && timeout -k 1 3 qdel "$castoff_next" >/dev/null 2>&1; then
    rm -f -- "$CASTOFF_ATTEMPT_DIR/next.json"
  fi
}
castoff_at_begun+=(castoff_submit_copy_beforehand)
castoff_at_exit+=(castoff_drop_copy)
readonly -f castoff_copy_words castoff_submit_copy_beforehand castoff_requeue castoff_drop_copy
