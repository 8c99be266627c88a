# --- castoff's local scheduler, or none -------------------------------------------------------------
#if teardown
castoff_scheduler_kill_delay() { echo 10; }
#endif
#if secrets
castoff_scheduler_advice="export it first"
#endif
castoff_scheduler_locate() {
  if [[ $0 -ef ${CASTOFF_RUN_DIR:-}/job.sh ]]; then # started by castoff's local scheduler
    castoff_alone=
    castoff_job=${CASTOFF_JOB_ID:?}
    castoff_submit_dir=${CASTOFF_SUBMIT_DIR:?}
    castoff_index=${CASTOFF_LOCAL_INDEX:?}
  else # started by hand: variables of a surrounding run do not apply
    castoff_alone=1
    castoff_job=local-$(date +%Y%m%d-%H%M%S)-$$
    castoff_submit_dir=$PWD
    castoff_index=${castoff_own_index:-0}
    unset -v CASTOFF_RUN_DIR
  fi
  castoff_cluster='' castoff_restarts=0
}
#if !here
castoff_scheduler_hosts() { hostname; }
#endif
#if mpiexec
castoff_scheduler_clear_env() { # or mpiexec would start ranks through a surrounding job, or by ssh if no name resolves
  unset -v "${!SLURM_@}" "${!PBS_@}"
  export HYDRA_LAUNCHER=fork I_MPI_HYDRA_BOOTSTRAP=fork
}
castoff_scheduler_find_launcher() { # if several MPIs are installed, each mpiexec also has a specific name, as on Debian
  local castoff_name castoff_found=none
  for castoff_name in "${castoff_command[0]}" "${castoff_command[0]}.$castoff_launcher_name"; do
    if ! command -v "$castoff_name" >/dev/null; then continue; fi
    castoff_found=$(castoff_mpi_of "$castoff_name")
    if [[ $castoff_found == "$castoff_launcher_name" ]]; then
      castoff_command[0]=$castoff_name
      return
    fi
    castoff_found="$castoff_name of $castoff_found"
  done
  castoff_reason="the launcher is $castoff_launcher_name, but no mpiexec of it is on PATH (there is: $castoff_found)"
  echo "castoff: $castoff_reason; install it, or load it in setup" >&2
  exit 127
}
#endif
#if requeue
castoff_scheduler_requeue() { # the local scheduler checks for this file
  [[ -z $castoff_alone ]] && : >"$CASTOFF_ATTEMPT_DIR/requeue"
}
#endif
#if walltime
castoff_scheduler_end_time() { echo $(($(date +%s) + castoff_walltime)); } # no scheduler reports it
# --- Enforces the walltime if castoff's scheduler is gone or was not used ---------------------------
castoff_scheduler_enforce_walltime() {
  (
    castoff_pause $((CASTOFF_DEADLINE - $(date +%s)))
    if [[ -z $castoff_alone ]] && castoff_has_scheduler; then castoff_pause 15; fi # the scheduler enforces it
    builtin kill -s TERM "$$"
    castoff_pause 10
    builtin kill -s TERM "$castoff_launcher" # a second TERM makes it kill its ranks
    castoff_pause 10
    builtin kill -s KILL "$castoff_launcher"
  ) &
  castoff_enforcer=$!
  disown "$castoff_enforcer" # or bash would report its end
}
castoff_pause() { # SECONDS; unlike sleep it runs traps meanwhile, and leaves no process
  if (($1 > 0)); then read -r -t "$1" _ <> <(:) || true; fi
}
castoff_has_scheduler() { # whether the scheduler is still this script's parent
  local castoff_parent
  castoff_parent=$(cat "/proc/$$/stat" 2>/dev/null) || return 0
  read -r _ castoff_parent _ <<<"${castoff_parent##*) }"
  [[ $castoff_parent == "$PPID" ]]
}
#endif
