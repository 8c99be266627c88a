# --- What Slurm tells a job -----------------------------------------------------------------------
castoff_scheduler_locate() {
#if array
  castoff_job=${SLURM_ARRAY_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=$SLURM_ARRAY_TASK_ID
  castoff_member=${castoff_job}_$castoff_index # SLURM_JOB_ID may stand for the whole array
#else
  castoff_job=${SLURM_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=0 castoff_member=$castoff_job
#endif
  castoff_cluster=${SLURM_CLUSTER_NAME:-} castoff_submit_dir=$SLURM_SUBMIT_DIR
  castoff_restarts=${SLURM_RESTART_COUNT:-0}
}
#if array
castoff_scheduler_choose_log() {
  if [[ -n ${CASTOFF_ARRAY_OFFSET:-} ]]; then # Slurm counts from 0 again, and would name the log by that
    exec >>"$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>&1
    export SLURM_ARRAY_TASK_ID=$CASTOFF_ARRAY_INDEX # to a program that reads Slurm's variable, each member is another
  fi
}
#endif
#if teardown
castoff_scheduler_kill_delay() {
  local castoff_seconds
  castoff_seconds=$(timeout 2 scontrol show config 2>/dev/null | sed -n 's/^KillWait *= *\([0-9]*\) sec.*/\1/p' || true)
  echo "${castoff_seconds:-30}"
}
#endif
#if secrets
castoff_scheduler_advice="submit with sbatch --export=NAME"
#endif
castoff_scheduler_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
castoff_scheduler_clear_env() { unset -v "${!PBS_@}"; } # the launcher would believe them
# sbatch hands on the variables of the step that it runs in, whatever --export says, and srun obeys them: all ranks
# would be bound to the CPUs of that step (seen on 22.05.8). What a directive of this script set is this job's own.
castoff_scheduler_begin() {
  local castoff_name castoff_option
  for castoff_name in "${!SLURM_@}" "${!SRUN_@}"; do
    castoff_option=${castoff_name#S*_}
    case $castoff_option in
      *_BIND | *_BIND_*) castoff_option=${castoff_option%%_BIND*}_BIND ;;
      DIST*) castoff_option=DISTRIBUTION ;;
      HINT | CPUS_PER_TASK | CPUS_PER_GPU | GPUS_PER_TASK | THREADS_PER_CORE) ;;
      *) continue ;;
    esac
    castoff_option=${castoff_option//_/-}
    grep -q "^#SBATCH --${castoff_option,,}\b" "$0" || unset -v "$castoff_name"
  done
  unset -v SLURM_EXPORT_ENV # of sbatch --export: each srun and sbatch in here would begin with an empty environment
}
castoff_scheduler_end_time() { # empty where nobody knows
  local castoff_end=${SLURM_JOB_END_TIME:-}
  if [[ -z $castoff_end ]]; then castoff_end=$(castoff_scheduler_end_now); fi # older than Slurm 23.02
  echo "$castoff_end"
}
castoff_scheduler_end_now() { # the same, asked anew: scontrol may have changed it
  local castoff_end
  castoff_end=$(timeout 10 squeue --noheader --job "$castoff_member" --format %e 2>/dev/null || true)
  date -d "${castoff_end:-unknown}" +%s 2>/dev/null || true
}
#if requeue
castoff_scheduler_requeue() { # Slurm then ends this job, and scontrol with it, maybe before that has its answer
  local castoff_code castoff_said castoff_last=$((SECONDS + ${castoff_grace:-120}))
  castoff_terminated=
#if !rerun
  scontrol update "JobId=$castoff_member" Requeue=1 >/dev/null 2>&1 || true # or it refuses this, too
#endif
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
#endif
