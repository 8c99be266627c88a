# --- Preload: a process on each node imports packages once, and the ranks start as forks of it --------
castoff_agents='' castoff_client='' castoff_agent='' castoff_gone=''
castoff_preload() { # LAUNCHER (one process per node)... -- MODULES PROGRAM...
  castoff_command=() castoff_flags=()
#if restart
  castoff_preload_words=("$@")
#endif
  while [[ $1 != -- ]]; do
    castoff_command+=("$1")
    shift
  done
  shift
#if activate
  castoff_python=(env PATH="$castoff_staged_path$PATH" "$2")
#else
  castoff_python=("$2")
#endif
  # A module castoff in the job's folder must not be imported.
  castoff_client=$("${castoff_python[@]}" -c 'import sys; sys.path = [*filter(None, sys.path)]
import castoff; print(castoff.__file__)' </dev/null 2>/dev/null || true)
  if [[ -z $castoff_client ]]; then
    echo "castoff: preload: $2 cannot import castoff here, so the ranks start without:" \
      "install castoff into the job's environment" >&2
    return
  fi
  castoff_client=${castoff_client%/*}/launcher/launchers/preload/client.py
  # An abstract socket: local to the node, without a file, and gone with its process.
  castoff_agent=@castoff-$UID-${castoff_job%%.*}-$(echo "$CASTOFF_ATTEMPT_DIR" | cksum | tr -d ' ')
  castoff_gone=$CASTOFF_ATTEMPT_DIR/preload-gone # exists when no process imports any more
#ifdef castoff_scheduler_find_launcher
  castoff_scheduler_find_launcher
#endif
#ifdef castoff_launcher_name_hosts
  castoff_launcher_name_hosts preload-hosts 1 "$castoff_nodes"
#elif spares
  castoff_launcher_place
#endif
#ifdef castoff_launcher_export
  castoff_launcher_export
#endif
#if loader
  # The importing process must start with the variables that the rank's program gets.
  # shellcheck disable=SC2016
  castoff_python=(sh -c "$castoff_loading"'exec "$@"' sh "${castoff_python[@]}")
#endif
  "${castoff_command[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"} "${castoff_python[@]}" \
    -I -S "${castoff_client%/*}/begin.py" "$castoff_agent" parent asked "$1" -- "${@:2}" \
    </dev/null >"$CASTOFF_ATTEMPT_DIR/preload.log" 2>&1 &
  castoff_agents=$!
  ( # if this script is killed, end the agents, which the launcher would keep; ranks then start without them
    trap - EXIT HUP INT TERM USR2
    while builtin kill -0 "$$" 2>/dev/null && builtin kill -0 "$castoff_agents" 2>/dev/null; do
      read -r -t 1 -u 9 _ || true # 9 never has input
    done 9<> <(:)
    : >"$castoff_gone" || true
    builtin kill -s TERM "$castoff_agents" 2>/dev/null || true
  ) &
  castoff_agents_watcher=$!
  disown "$castoff_agents" "$castoff_agents_watcher"
}
#if restart
castoff_keep_agents() { # FOLDER of the previous attempt: reuse its agents, unless they are gone or on other hosts
  if [[ -z $castoff_agents ]]; then return 0; fi
  if cmp -s "$1/hosts" "$CASTOFF_ATTEMPT_DIR/hosts" && builtin kill -0 "$castoff_agents" 2>/dev/null; then return 0; fi
  castoff_end_agents
  castoff_preload "${castoff_preload_words[@]}"
}
#endif
castoff_end_agents() {
  if [[ -z $castoff_agents ]]; then return 0; fi
  builtin kill -s KILL "$castoff_agents_watcher" 2>/dev/null || true
  builtin kill -s TERM "$castoff_agents" 2>/dev/null || true
  for _ in {1..100}; do # Open MPI's mpiexec takes over a second; killed, it would leave agents on other hosts
    builtin kill -0 "$castoff_agents" 2>/dev/null || return 0
    read -r -t 0.05 -u 9 _ || true
  done 9<> <(:)
  builtin kill -s KILL "$castoff_agents" 2>/dev/null || true
}
