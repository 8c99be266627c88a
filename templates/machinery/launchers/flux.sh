#if node
castoff_process=${FLUX_TASK_RANK:?castoff: flux run did not say which rank this is}
castoff_local=${FLUX_TASK_LOCAL_ID:?castoff: flux run did not say which local rank this is}
castoff_started=${FLUX_JOB_SIZE:?castoff: flux run did not say how many ranks there are}
#else
# --- flux run -------------------------------------------------------------------------------------
castoff_launcher_name=flux
#if hosts
castoff_launcher_each() { # FILE COUNT of hosts: flags for one process on each
  castoff_flags=("--nodes=$2" "--requires=host:$(paste -sd, "$1")")
}
#endif
#if nodes !driver | hang | teardown | expiry
castoff_launcher_cancel() { # TERM is for the ranks, and KILL leaves them running: two INTs end them
  for _ in {1..3}; do builtin kill -s INT "$castoff_launcher" 2>/dev/null && ! read -r -t 0.3 -u 9 _; done || true
}
#endif
#if nodes !driver
castoff_launcher_advise() {
  echo "castoff: flux run waits for cores that another of this job's programs holds (flux jobs)," \
    "or for a node that does not answer (flux overlay status)" >&2
}
#endif
#endif
