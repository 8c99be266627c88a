# --- Start of the ranks ---------------------------------------------------------------------------
#if driver
castoff_launcher_name=driver # the script starts the driver itself
#endif
castoff_start() { # LAUNCHER... RANK_PROGRAM PROGRAM...
#if teardown
  castoff_set_up=1
#endif
  castoff_check_run_dir
#if attempts
  castoff_check_fence # another attempt may have begun during setup
#endif
  castoff_command=() castoff_flags=()
  while [[ $1 != "$castoff_rank" ]]; do
    castoff_command+=("$1")
    shift
  done
#if torchrun
#ifdef castoff_launcher_name_hosts
  castoff_launcher_name_hosts hostfile 1 "$castoff_nodes"
#endif
  castoff_write_torchrun_rank
#else
#ifdef castoff_launcher_place
  castoff_launcher_place
#endif
#endif
#ifdef castoff_scheduler_find_launcher
  castoff_scheduler_find_launcher
#endif
#ifdef castoff_launcher_beside
  castoff_launcher_beside
#endif
#ifdef castoff_launcher_export
  castoff_launcher_export
#endif
#ifdef castoff_runtime_flags
  castoff_runtime_flags
#endif
#if !together
#ifdef castoff_scheduler_guard
  castoff_scheduler_guard
#endif
#endif
#if nodes !driver
  : >"$CASTOFF_ATTEMPT_DIR/starting" || true # removed by the first rank
  castoff_missing='' castoff_all_started=''
#endif
#if survives | restart nodes !driver
  castoff_failed_since=''
#endif
#if by_ssh nodes
  castoff_all_ended='' castoff_ended_at=''
#endif
  castoff_write_rank
#if per_rank_logs
  castoff_first_log=rank-00000.log
#else
  castoff_first_log=node-00000.log
#endif
  : >"$CASTOFF_LOG_DIR/$castoff_first_log"
  printf '%(%s)T\n' -1 >"$CASTOFF_ATTEMPT_DIR/launched" || true # end of setup
#if judged
  echo "$PWD" >"$CASTOFF_ATTEMPT_DIR/folder" || true # where checkpoints are searched
#if guessed
  castoff_note_others
#endif
#endif
#ifdef castoff_launcher_tries_again
  castoff_launch() { # RANK_PROGRAM PROGRAM...
#endif
  "${castoff_command[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"} "${castoff_run_checked[@]}" "$@" &
  castoff_launcher=$!
  tail -n +1 -f -s 0.2 --pid="$castoff_launcher" "$CASTOFF_LOG_DIR/$castoff_first_log" & # other logs are next to it
  castoff_tail=$!
#ifdef castoff_launcher_tries_again
  }
  castoff_launch "$@"
#endif
#ifdef castoff_watch_ranks
  castoff_watch_due=$((SECONDS + 1)) castoff_began=$SECONDS
#endif
#if hang
  castoff_watch_hang
#endif
#ifdef castoff_scheduler_enforce_walltime
  castoff_scheduler_enforce_walltime
#endif
  castoff_wait
#ifdef castoff_launcher_tries_again
  while [[ -z $castoff_terminated && ! -e $CASTOFF_ATTEMPT_DIR/unstarted ]] && castoff_launcher_tries_again; do
    builtin wait "$castoff_tail" || true
    castoff_launch "$@"
    castoff_wait
  done
#endif
#ifdef castoff_scheduler_enforce_walltime
  builtin kill -s KILL "$castoff_enforcer" 2>/dev/null || true
#endif
#ifdef castoff_watch_ranks
  castoff_watch_due=0
#endif
#if hang
  castoff_end_hang_watch
#endif
#if many_ranks !container
  rm -rf -- "${TMPDIR:-/tmp}/$castoff_local_stacks" # if ranks of this host were ended by KILL
#endif
  builtin wait "$castoff_tail" || true
#if fence !nodes !hosts !driver
  castoff_end_left
#endif
}
#if nodes !driver | survives | alone
castoff_watch_due=0 # castoff_wait calls castoff_watch_ranks each second while ranks run
castoff_watch_ranks() {
  castoff_watch_due=$((SECONDS + 1))
#if nodes !driver
  if [[ -z $castoff_all_started ]]; then castoff_check_start; fi
#endif
#if survives | restart nodes !driver
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then castoff_check_failure; fi
#endif
#if by_ssh nodes
  castoff_check_ended
#endif
#if alone
  castoff_check_lone_rank
#endif
}
#endif
#if survives | nodes !driver | hang !here
castoff_end_launcher() { # it has 6 s to end its ranks; 9 never has input
#if nodes !driver | survives | alone
  castoff_watch_due=0
#endif
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true
  for _ in {1..60}; do
    builtin kill -0 "$castoff_launcher" 2>/dev/null || return 0
    read -r -t 0.1 -u 9 _ || true
  done
#ifdef castoff_launcher_cancel
  castoff_launcher_cancel
  read -r -t 6 -u 9 _ || true
#endif
  builtin kill -s KILL "$castoff_launcher" 2>/dev/null || true
}
#endif
#if by_ssh nodes
castoff_check_ended() { # if a host's daemon dies, the launcher may wait forever for ranks that have succeeded
  local castoff_count=$castoff_ranks castoff_ended
#if torchrun | many_ranks
  castoff_count=$castoff_nodes
#endif
#if torchrun
  if [[ ! -e $CASTOFF_ATTEMPT_DIR/ended/node-0 || -n $castoff_all_ended ]]; then return 0; fi
#else
  if [[ ! -e $CASTOFF_ATTEMPT_DIR/ended/0 || -n $castoff_all_ended ]]; then return 0; fi
#endif
  { : >"$CASTOFF_ATTEMPT_DIR/ended/.look"; } 2>/dev/null || true # makes NFS refresh the folder
#if torchrun
  castoff_ended=("$CASTOFF_ATTEMPT_DIR"/ended/node-*)
#elif many_ranks
  castoff_ended=("$CASTOFF_ATTEMPT_DIR"/ended/all-*)
#else
  castoff_ended=("$CASTOFF_ATTEMPT_DIR"/ended/*)
#endif
  if ((${#castoff_ended[@]} < castoff_count)); then return 0; fi
  castoff_ended_at=${castoff_ended_at:-$SECONDS}
  if ((SECONDS < castoff_ended_at + 10)); then return 0; fi
  castoff_all_ended=1
  echo "castoff: all ranks have ended well, and $castoff_launcher_name waits for a host, so it is ended" >&2
  castoff_end_launcher
}
#endif
#if survives
castoff_check_failure() { # mpiexec should end all ranks when one has failed; if it does not, they would wait
  local castoff_patience=4 # seconds
#elif restart nodes !driver
# When a rank has failed, the launcher ends the others, but waits for those of a lost host until the scheduler gives
# the host up: 300 s with Slurm's default SlurmdTimeout. host.sh ends ranks on other hosts.
castoff_check_failure() {
  local castoff_patience=15 # seconds
#endif
#if survives | restart nodes !driver
  castoff_failed_since=${castoff_failed_since:-$SECONDS}
  if ((SECONDS < castoff_failed_since + castoff_patience)); then return 0; fi
#if hang
  if [[ -e $CASTOFF_ATTEMPT_DIR/hang ]]; then return 0; fi # castoff_end_hang ends the launcher
#endif
#if survives
  echo "castoff: a rank has failed and $castoff_launcher_name keeps the others running, so they are ended" >&2
#else
  echo "castoff: a rank has failed, and $castoff_launcher_name still waits for others, so it is ended" >&2
#endif
  castoff_end_launcher
}
#endif
#if alone
castoff_meeting='' castoff_between=2 # seconds
castoff_check_lone_rank() { # a library that counts devices instead of ranks would wait for others without a message
  local castoff_before=$castoff_meeting
  castoff_meeting=$(castoff_find_meeting || true)
  if [[ -n $castoff_meeting && $castoff_meeting == "$castoff_before" ]]; then
    echo "castoff: the only rank waits for others in torch's rendezvous, but nobody starts any: the job has" \
      "WORLD_SIZE=1. Start as many as the program expects (ranks_per_node in the job file). If it starts its own," \
      "as Lightning does with devices=2, have castoff run it once, without RANK: --set launcher.driver=true" >&2
    castoff_watch_due=0
    return
  fi
  castoff_between=$((${#castoff_meeting} ? 4 : castoff_between < 32 ? castoff_between * 2 : 60))
  castoff_watch_due=$((SECONDS + castoff_between))
}
castoff_find_meeting() { # prints processes that serve torch's store without a process group or workers, and CPU times
  local castoff_process castoff_child castoff_stat
  while read -r castoff_process; do
    grep -qsE '^pt_tcpstore' "$castoff_process"/task/*/comm || continue
    ! grep -qsE '^pt_(gloo|nccl|xccl|mpi)' "$castoff_process"/task/*/comm || continue
    for castoff_child in $(cat "$castoff_process"/task/*/children 2>/dev/null || true); do # orted, wandb are not ranks
      if [[ /proc/$castoff_child/exe -ef $castoff_process/exe ]] &&
        ! grep -qsF multiprocessing.resource_tracker "/proc/$castoff_child/cmdline"; then continue 2; fi
    done
    grep -qszxF "CASTOFF_ATTEMPT_DIR=$CASTOFF_ATTEMPT_DIR" "$castoff_process/environ" || continue
    castoff_stat=$(cat "$castoff_process/stat" 2>/dev/null) || continue
    read -ra castoff_stat <<<"${castoff_stat##*) }"
    echo "$castoff_process $(((castoff_stat[11] + castoff_stat[12]) / 50))"
  done < <(find /proc -maxdepth 1 -uid "$EUID" -name '[1-9]*' 2>/dev/null)
}
#endif
castoff_show_failure() {
#if torchrun | driver | stage | restart | hang
  local castoff_log
#else
  local castoff_log castoff_signal
#endif
#if hang
  if [[ -e $CASTOFF_ATTEMPT_DIR/hang ]]; then return 0; fi # no rank failed, and the hang was reported
#endif
#if torchrun | driver | stage | restart | hang
  castoff_log=$(castoff_field log)
  echo "castoff: $(castoff_failure_words); see $CASTOFF_LOG_DIR/$castoff_log" >&2
#else
  castoff_log=$(castoff_field log) castoff_signal=$(castoff_field signal | sed s/null//)
  echo "castoff: rank $(castoff_field rank) on $(castoff_field host) failed first:" \
    "${castoff_signal:+killed by }${castoff_signal:-exit code $castoff_code}; see $CASTOFF_LOG_DIR/$castoff_log" >&2
#endif
#if survives !driver
  if [[ $castoff_code != 137 ]]; then
    echo "castoff: signal 9 in the report of $castoff_launcher_name above is castoff's:" \
      "it ends that rank, so that the others end, too" >&2
  fi
#endif
  if [[ $castoff_log != "$castoff_first_log" ]]; then tail -n 40 "$CASTOFF_LOG_DIR/$castoff_log" >&2 || true; fi
}
castoff_check_success() { # srun also exits with 0 when it loses a node, so rank 0 must have recorded its success
#if together per_rank_logs
#ifdef castoff_job_hosts_now
  local castoff_files=("$CASTOFF_ATTEMPT_DIR"/ended/[0-9]*) # other ranks may have been killed with their host
  if ((${#castoff_files[@]} < castoff_ranks)) && castoff_has_lost_host; then
    echo "castoff: $castoff_launcher_name exited with 0, but a host was lost before all ranks ended" >&2
    castoff_terminated=1
    return
  fi
#endif
#endif
  for _ in {1..10}; do # it may have run on another host, so its file may appear late; the run may have been deleted
#if torchrun
    if [[ -e $CASTOFF_ATTEMPT_DIR/ended/node-0 || ! -d $CASTOFF_ATTEMPT_DIR ]]; then return; fi
#else
    if [[ -e $CASTOFF_ATTEMPT_DIR/ended/0 || ! -d $CASTOFF_ATTEMPT_DIR ]]; then return; fi
#endif
    sleep 1
  done
#if torchrun
  echo "castoff: $castoff_launcher_name exited with 0, but torchrun did not end: its node was lost" >&2
#else
  echo "castoff: $castoff_launcher_name exited with 0, but rank 0 did not end: its node was lost" >&2
#endif
  castoff_terminated=1
}
#if mpiexec
castoff_on_launcher_failure() { # if the launcher failed, but no rank: report if it is not the site's MPI
  local castoff_found
  castoff_found=$(castoff_mpi_of "${castoff_command[0]}")
  if [[ $castoff_found != "$castoff_launcher_name" ]]; then
    echo "castoff: this job's launcher is $(command -v "${castoff_command[0]}"), which is $castoff_found," \
      "and the site's is $castoff_launcher_name. Have setup put the site's own first on PATH (module load)," \
      "or set the profile's launcher to $castoff_found" >&2
  fi
}
castoff_mpi_of() { # MPIEXEC: prints which launcher it is; the job's launcher if unknown
  case $(timeout 10 "$1" --version 2>&1 </dev/null || true) in
    *"Open MPI"* | *OpenRTE* | *PRTE*) echo openmpi ;;
    *"Intel(R) MPI"*) echo intelmpi ;;
    *HYDRA*) echo hydra ;;
    *) echo "$castoff_launcher_name" ;;
  esac
}
#endif
