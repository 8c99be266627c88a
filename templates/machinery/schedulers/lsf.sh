# --- What LSF tells a job -------------------------------------------------------------------------
castoff_scheduler_locate() {
  castoff_job=${LSB_JOBID:?castoff: submit this script with bsub}
#if array
  castoff_member="${castoff_job}[$LSB_JOBINDEX]"
#if sparse !places
  castoff_index=$LSB_JOBINDEX
#else
  castoff_index=$((LSB_JOBINDEX - 1)) # LSF counts from 1
#endif
#else
  castoff_index=0 castoff_member=$castoff_job
#endif
  castoff_submit_dir=${LS_SUBCWD:-$PWD}
  castoff_cluster='' castoff_restarts=0
  castoff_mark=LSB_JOBID=$LSB_JOBID # jobs that its ranks submit have all else of their environment
}
castoff_scheduler_choose_log() { # LSF would keep what -o takes until the job has ended, and add the script to it
  if [[ ${LSB_OUTPUTFILE:-} == "$CASTOFF_RUN_DIR"/logs/lsf-* ]]; then
    exec >>"$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>&1
  fi
#if places
  export LSB_JOBINDEX=$CASTOFF_ARRAY_INDEX # for a program that reads LSF's variable
#endif
}
#if teardown
castoff_scheduler_kill_delay() { echo 20; } # INT, TERM and KILL, JOB_TERMINATE_INTERVAL apart
#endif
#if secrets
castoff_scheduler_advice="submit with bsub -env NAME"
#endif
castoff_scheduler_hosts() { # each with its slots, in one line
  tr -s ' ' '\n' <<<"$LSB_MCPU_HOSTS" | awk 'NF && NR % 2 && !seen[$1]++'
}
castoff_scheduler_clear_env() { unset -v "${!SLURM_@}" "${!PBS_@}"; } # the launcher would believe them
#if walltime
castoff_scheduler_end_time() { echo $(($(date +%s) + castoff_walltime)); } # nobody else tells it
#endif
castoff_scheduler_ended_rank() { # by the signal that every process gets at the walltime, 10 minutes before INT
  [[ -n $castoff_late && $(castoff_field signal) == SIGUSR2 ]]
}
#if requeue
castoff_scheduler_requeue() { # LSF ends this job by INT, and queues it again
  local castoff_last=$((SECONDS + ${castoff_grace:-120})) castoff_command=${LSF_BINDIR:+$LSF_BINDIR/}brequeue
  castoff_terminated=
  until timeout -k 2 30 "$castoff_command" "$castoff_member"; do
    if [[ -n $castoff_terminated ]]; then return 0; fi # there was no answer, and it has happened
    if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
    read -r -t 1 _ <> <(:) || true # unlike sleep it lets a trap run
  done
  until [[ -n $castoff_terminated ]] || ((SECONDS >= castoff_last)); do read -r -t 1 _ <> <(:) || true; done
}
#endif
