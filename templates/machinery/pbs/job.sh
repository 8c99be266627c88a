castoff_locate() {
  castoff_job=${PBS_JOBID:?castoff: submit this script with qsub}
  castoff_index=0
  castoff_submit_dir=$PBS_O_WORKDIR
  castoff_restarts=0
  castoff_read_run_dir
}
readonly -f castoff_locate
