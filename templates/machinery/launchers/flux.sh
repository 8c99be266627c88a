#if node
castoff_process=${FLUX_TASK_RANK:?castoff: flux run did not say which rank this is}
castoff_local=${FLUX_TASK_LOCAL_ID:?castoff: flux run did not say which local rank this is}
castoff_started=${FLUX_JOB_SIZE:?castoff: flux run did not say how many ranks there are}
#else
# --- flux run -------------------------------------------------------------------------------------
castoff_launcher_name=flux
#if hosts
castoff_launcher_each() { # FILE COUNT of hosts: set the command that starts one process on each
  # flux run would wait for a host that does not answer, and block other jobs in the queue (seen on 0.88.0).
  castoff_flags=("--rank=$(command flux hostlist -F "$(paste -sd, "$1")" local | tr ' ' ,)" sh -c
    'FLUX_TASK_RANK=$(($(grep -nxF "$(flux getattr hostname)" "$0" | cut -d : -f 1) - 1)) || exit
    export FLUX_TASK_RANK FLUX_TASK_LOCAL_ID=0 FLUX_JOB_SIZE=1
    exec "$@"' "$1")
}
#endif
#if together
castoff_launcher_place() { castoff_flags=("--requires=host:$(paste -sd, "$CASTOFF_ATTEMPT_DIR/hosts")"); }
#endif
#if nodes !driver | hang | teardown | expiry
castoff_launcher_cancel() { # flux run passes TERM to the ranks, and KILL leaves them running: two INTs end them
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
