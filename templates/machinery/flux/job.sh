castoff_locate() {
  castoff_job=$(command flux job id --to=dec "${FLUX_ENCLOSING_ID:?castoff: submit this script with flux batch}")
  castoff_instance=$(command flux --parent getattr jobid-path)
  castoff_index=0
  castoff_submit_dir=$PWD
  # castoff submit starts it in its run directory, by which the queue's answers name it.
  if [[ -n ${CASTOFF_RUN_DIR:-} && $PWD -ef $CASTOFF_RUN_DIR ]]; then
    castoff_submit_dir=${CASTOFF_SUBMITTED_FROM:-$PWD}
  fi
  castoff_restarts=0
}
readonly -f castoff_locate
