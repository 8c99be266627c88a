castoff_locate() {
  castoff_job=${PBS_JOBID:?castoff: submit this script with qsub}
  castoff_job=${castoff_job/\[*\]/[]} # the same for all members
  castoff_index=${PBS_ARRAY_INDEX:-0} # PBS makes no array of one
  castoff_submit_dir=$PBS_O_WORKDIR
  castoff_restarts=0
  castoff_read_run_dir
}
readonly -f castoff_locate
