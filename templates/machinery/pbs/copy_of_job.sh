castoff_requeue() {
  castoff_submit_copy -W "depend=afterany:$PBS_JOBID" -o "$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log"
}
readonly -f castoff_requeue
