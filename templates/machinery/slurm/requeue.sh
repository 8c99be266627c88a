castoff_requeue() { # Slurm then ends this job, and scontrol with it, maybe before that has its answer
  local castoff_code castoff_said castoff_last=$((SECONDS + ${castoff_grace:-120}))
  castoff_terminated=
  while :; do
    castoff_code=0
    castoff_said=$(scontrol requeue "$castoff_member" 2>&1) || castoff_code=$?
    if ((castoff_code == 0 || castoff_code == 143)) || [[ -n $castoff_terminated ]]; then return 0; fi
    echo "castoff: scontrol requeue $castoff_member: ${castoff_said:-exit code $castoff_code}" >&2
    if [[ $castoff_said == *denied* || $castoff_said == *disabled* ]]; then return 1; fi
    # What had no answer may still happen, and a second request could end the next attempt: so there is
    # none before Slurm says that it still runs this one.
    until castoff_said=$(castoff_as_slurm_has_it); do
      if [[ -n $castoff_terminated ]]; then return 0; fi
      if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
      castoff_pause 1
    done
    if [[ ! $castoff_said =~ ^RUNNING\ +"${SLURM_RESTART_COUNT:-0}"\ *$ ]]; then return 0; fi
    if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
    castoff_pause 1
  done
}
castoff_as_slurm_has_it() { # the state of this job, and how often it has been started again
  squeue --noheader --job "$castoff_member" --Format State:20,RestartCnt:20 2>/dev/null
}
readonly -f castoff_requeue castoff_as_slurm_has_it
