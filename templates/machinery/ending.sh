# --- Ending of the job ----------------------------------------------------------------------------
castoff_end() { # decided by the first failure and the program's outcome; the launcher's exit code may be a later rank's
  set +e # a message that cannot be written to a full disk must not set the job's exit code
#if setup
  castoff_unset_user_functions
#endif
#if nodes !driver
  if [[ -e $CASTOFF_ATTEMPT_DIR/unstarted ]]; then castoff_code=1; fi # the launcher's code only shows that it was ended
#endif
#if stage !teardown
  castoff_unstage "$castoff_code"
#endif
  castoff_outcome=$(cat "$CASTOFF_OUTCOME_FILE" 2>/dev/null || true)
  castoff_late= # whether the walltime ends this job
  if [[ -n ${CASTOFF_DEADLINE:-} ]] && (($(date +%s) + 15 > CASTOFF_DEADLINE)); then castoff_late=1; fi
#if mpiexec
  if ((castoff_code != 0)) && [[ -z $castoff_terminated && ! -e $CASTOFF_FAILURE_FILE ]]; then
    castoff_on_launcher_failure
  fi
#endif
#if expiry copy | expiry chain
  if [[ -z $castoff_expired && -n $castoff_terminated && -n $castoff_late ]]; then
    castoff_expired="ended by a signal shortly before the walltime"
  fi
#endif
#if expiry
  if [[ -n $castoff_expired && ! $castoff_outcome =~ ^(done|resume)$ ]]; then
    castoff_end_early "$castoff_expired"
  fi
#endif
#if obeyed
  if castoff_obeyed_signal; then castoff_end_early "ended after SIG$castoff_chosen_signal"; fi
#endif
#if restart
  if [[ -n $castoff_has_failed ]]; then castoff_end_of_restarts; fi
#elif hang
  if [[ -e $CASTOFF_ATTEMPT_DIR/hang ]]; then castoff_reason=$(castoff_failure_words); fi
#endif
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then # it is empty if the disk was full
    castoff_code=$(castoff_field code)
#ifdef castoff_scheduler_ended_rank
    if castoff_scheduler_ended_rank; then castoff_ending=walltime; fi
#endif
#if !here !script
    castoff_show_failure
#endif
    exit "${castoff_code:-1}"
  fi
  if [[ $castoff_outcome == resume && (-z $castoff_terminated || -n $castoff_late) ]]; then
    castoff_ending=resume
#if teardown
    castoff_tear_down resume 75
#if stage
    castoff_unstage "$castoff_code"
#endif
#endif
    if [[ ! -e $CASTOFF_RUN_DIR/stop ]]; then # otherwise castoff stop ended it, and castoff resubmit resumes it
#if requeue | copy | chain
#if stops
      castoff_start_again
#else
      castoff_reason="not requeued: requeue.on does not name stop"
      echo "castoff: $castoff_reason" >&2
#endif
#endif
      castoff_ending=walltime castoff_reason=${castoff_reason:-it stopped early; castoff resubmit resumes it}
    fi
    exit 75 # EX_TEMPFAIL: the run can be resumed
  fi
#if !here !script
  if ((castoff_code == 0)) && [[ $castoff_outcome != 'done' && -z $castoff_terminated ]]; then
    castoff_check_success
  fi
#endif
#if here
  if [[ $castoff_outcome == 'done' || (-z $castoff_terminated && $castoff_code =~ ^(0|74)$) ]]; then
#else
  if [[ $castoff_outcome == 'done' || (-z $castoff_terminated && $castoff_code -eq 0) ]]; then
#endif
    castoff_check_room
    castoff_ending='done'
    exit 0
  fi
  if [[ -n $castoff_terminated ]]; then
    castoff_ending=cancelled
    if [[ -n $castoff_late ]]; then
      castoff_ending=walltime
#if requeue !expiry | copy !expiry | chain !expiry
      castoff_reason="not requeued: requeue.on does not name walltime"
#endif
    fi
#if !script
    if ((castoff_code == 0)); then castoff_code=143; fi
#endif
  fi
  exit "$castoff_code"
}
castoff_check_room() { # output of the ranks is lost on a full disk, which few programs notice
  castoff_reason=$(export LC_ALL=C && exec 2>&1 && cd "$CASTOFF_LOG_DIR" &&
    head -c 4096 /dev/urandom >.room && sync .room; rm -f .room)
#if here
  if ((castoff_code == 74)); then castoff_reason+="No space left"; fi # castoff launch could not write a log
#endif
  if [[ ! $castoff_reason =~ No\ space\ left|quota\ exceeded ]]; then castoff_reason='' && return; fi
  castoff_reason="${BASH_REMATCH[0]} on the disk of the run directory: output of the ranks may be lost"
  echo "castoff: $castoff_reason" >&2
  exit 74 # EX_IOERR
}
#if restart | hang | notify | torchrun !here !script | driver !here !script | stage !here !script
castoff_failure_words() { # prints, say: rank 3 on n2 failed first: killed by SIGKILL
  local castoff_program castoff_signal castoff_how
#if hang
  if [[ -e $CASTOFF_ATTEMPT_DIR/hang ]]; then
    cat "$CASTOFF_ATTEMPT_DIR/hang"
    return
  fi
#endif
  castoff_program=$(castoff_field program) castoff_signal=$(castoff_field signal | sed s/null//)
  castoff_how="failed first: ${castoff_signal:+killed by }${castoff_signal:-exit code $(castoff_field code)}"
#if script notify
  if [[ $castoff_program == script ]]; then castoff_program="the script" castoff_how=${castoff_how/ first/}; fi
#endif
  if [[ $castoff_program == driver ]]; then castoff_program="the driver" castoff_how=${castoff_how/ first/}; fi
  if [[ $(castoff_field reason) == out-of-memory ]]; then castoff_how+=", out of memory"; fi
  echo "${castoff_program:-rank $(castoff_field rank)} on $(castoff_field host) $castoff_how"
}
#endif
castoff_field() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^",}]*\).*/\1/p' "$CASTOFF_FAILURE_FILE"; }
#if expiry | obeyed
castoff_end_early() { # WHAT ended it; the program wrote no outcome, so a requeue depends on its progress
  local castoff_why
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_reason="$1; not requeued: castoff stop was called"
  elif castoff_lacks_progress "$CASTOFF_ATTEMPT"; then
    castoff_reason="$1; not requeued: $castoff_why"
    echo "castoff: $castoff_reason" >&2
  else
    castoff_ending=resume castoff_reason=$1
#if guessed
    castoff_reason+=${castoff_seen:+; $castoff_seen}
#endif
#if teardown
    castoff_tear_down resume 75
#endif
    castoff_start_again
  fi
  castoff_ending=walltime
  exit $((castoff_code ? castoff_code : 75))
}
#endif
#if obeyed
castoff_obeyed_signal() { # whether the signal, and no failure, ended the program
  if [[ ! -e $CASTOFF_ATTEMPT_DIR/signalled || -n $castoff_terminated || -n $castoff_outcome ]]; then return 1; fi
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then castoff_code=$(castoff_field code); fi
  ((castoff_code == 0 || castoff_code == 128 + castoff_chosen_number))
}
#endif
#if requeue | copy | chain
# --- Requeue after an early end -------------------------------------------------------------------
castoff_start_again() { # returns if the job cannot be requeued, with the reason in castoff_reason
  local castoff_why="requeue.max ($castoff_requeue_max) is used up"
#if chain
  if ((${CASTOFF_CHAIN:-$castoff_requeue_max} < castoff_requeue_max)); then
    castoff_ending=resume
    exit 75 # not 0, so that the chain's next job runs
  fi
  if [[ -z ${CASTOFF_CHAIN:-} ]]; then castoff_why="no chain follows: castoff submit sends one"; fi
#else
#if restart
  if (($(castoff_count_requeues) < castoff_requeue_max)); then
#else
  if ((CASTOFF_ATTEMPT - CASTOFF_FIRST_ATTEMPT < castoff_requeue_max)); then
#endif
    castoff_record_ending resume "${castoff_resume_code:-0}" # before the scheduler ends this job
    if castoff_scheduler_requeue; then
      castoff_ending=resume
      exit "${castoff_resume_code:-0}"
    fi
    if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # castoff stop was called meanwhile
      castoff_ending=resume
      exit 75
    fi
    castoff_why="the scheduler did not requeue it"
  fi
#endif
  castoff_reason+="${castoff_reason:+; }not requeued: $castoff_why"
  echo "castoff: not requeued: $castoff_why" >&2
}
#endif
#if chain
# --- Chain: jobs submitted beforehand, which resume one after the other ---------------------------
castoff_check_chain() {
  local castoff_before castoff_last castoff_why=
  if ((!${CASTOFF_CHAIN:-0})); then return 0; fi
  # This is a later job of the chain: the one before did not exit with 0.
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  castoff_last=$(sed -n 's/.*"ending": *"\([^"]*\)".*/\1/p' "$castoff_before/ending.json" 2>/dev/null || true)
#ifdef castoff_scheduler_has_lost_host
  if [[ $castoff_last == node-failure ]]; then castoff_last=; fi # treated as killed
#endif
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_why="the run was asked to stop; castoff resubmit restarts it"
  elif ((CASTOFF_ATTEMPT == CASTOFF_FIRST_ATTEMPT)); then
    castoff_why="the job before it never began"
#if expiry
  elif [[ -z $castoff_last ]]; then # it was killed
    castoff_lacks_progress $((CASTOFF_ATTEMPT - 1)) || true
#endif
  elif [[ ! $castoff_last =~ ^(resume|)$ ]]; then
    castoff_why="attempt $((CASTOFF_ATTEMPT - 1)) has ended: $castoff_last"
  fi
  if [[ -n $castoff_why ]]; then
    echo "castoff: job $CASTOFF_CHAIN of the chain does not begin: $castoff_why"
    exit 0 # so that the following jobs are not run
  fi
}
#endif
