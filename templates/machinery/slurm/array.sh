castoff_locate() {
  castoff_job=${SLURM_ARRAY_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=$SLURM_ARRAY_TASK_ID
  castoff_member=${castoff_job}_$castoff_index # SLURM_JOB_ID may stand for the whole array
  castoff_submit_dir=$SLURM_SUBMIT_DIR
  castoff_restarts=${SLURM_RESTART_COUNT:-0}
}
castoff_choose_log() {
  if [[ -n ${CASTOFF_ARRAY_OFFSET:-} ]]; then # Slurm counts from 0 again, and would name the log by that
    exec >>"$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>&1
  fi
}
castoff_at_records+=(castoff_choose_log)
readonly -f castoff_locate castoff_choose_log
