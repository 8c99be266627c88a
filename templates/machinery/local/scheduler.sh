# --- What castoff's own scheduler tells a job, or that there is none -------------------------------
castoff_to_give="export it first"
castoff_locate() {
  if [[ $0 -ef ${CASTOFF_RUN_DIR:-}/job.sh ]]; then # castoff's local scheduler runs it
    castoff_alone=
    castoff_job=${CASTOFF_JOB_ID:?}
    castoff_submit_dir=${CASTOFF_SUBMIT_DIR:?}
    castoff_index=${CASTOFF_LOCAL_INDEX:?}
  else # it stands alone: what a run around it left in the environment is not ours
    castoff_alone=1
    castoff_job=local-$(date +%Y%m%d-%H%M%S)-$$
    castoff_submit_dir=$PWD
    castoff_index=${castoff_own_index:-0}
    unset -v CASTOFF_RUN_DIR
  fi
  castoff_restarts=0
}
castoff_about_start() { # what start.json holds
  printf '{"job": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "$(hostname)" "$(date +%s)"
}
castoff_clear_other_schedulers() { :; } # where castoff launches within their jobs, their steps are ours
readonly -f castoff_locate castoff_about_start castoff_clear_other_schedulers
