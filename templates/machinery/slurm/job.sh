castoff_locate() {
  castoff_job=${SLURM_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=0
  castoff_member=$castoff_job
  castoff_submit_dir=$SLURM_SUBMIT_DIR
  castoff_restarts=${SLURM_RESTART_COUNT:-0}
}
readonly -f castoff_locate
