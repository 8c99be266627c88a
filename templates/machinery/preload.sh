# --- Preload: one process of each node imports once, and its ranks begin as copies of it -------------
castoff_agents='' castoff_client='' castoff_agent='' castoff_gone=''
castoff_preload() { # LAUNCHER of one process a node... -- MODULES PROGRAM...
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
  # What the folder of the job has of that name is not castoff's.
  castoff_client=$("${castoff_python[@]}" -c 'import sys; sys.path = [*filter(None, sys.path)]
import castoff; print(castoff.__file__)' </dev/null 2>/dev/null || true)
  if [[ -z $castoff_client ]]; then
    echo "castoff: preload: $2 cannot import castoff here, so the ranks start without:" \
      "install castoff into the job's environment" >&2
    return
  fi
  castoff_client=${castoff_client%/*}/launcher/launchers/preload/client.py
  # An address of this node alone, which has no file and is gone with its process.
  castoff_agent=@castoff-$UID-${castoff_job%%.*}-$(echo "$CASTOFF_ATTEMPT_DIR" | cksum | tr -d ' ')
  castoff_gone=$CASTOFF_ATTEMPT_DIR/preload-gone # there once nobody imports any more
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
  # What a rank's program begins with, the process that it is a copy of must have begun with.
  # shellcheck disable=SC2016
  castoff_python=(sh -c "$castoff_loading"'exec "$@"' sh "${castoff_python[@]}")
#endif
  "${castoff_command[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"} "${castoff_python[@]}" \
    -I -S "${castoff_client%/*}/begin.py" "$castoff_agent" parent asked "$1" -- "${@:2}" \
    </dev/null >"$CASTOFF_ATTEMPT_DIR/preload.log" 2>&1 &
  castoff_agents=$!
  ( # a launcher whose script is killed would keep them for ever; ranks that still start need not wait for none
    trap - EXIT HUP INT TERM USR2
    while builtin kill -0 "$$" 2>/dev/null && builtin kill -0 "$castoff_agents" 2>/dev/null; do
      read -r -t 1 -u 9 _ || true # nothing ever comes
    done 9<> <(:)
    : >"$castoff_gone" || true
    builtin kill -s TERM "$castoff_agents" 2>/dev/null || true
  ) &
  castoff_agents_watcher=$!
  disown "$castoff_agents" "$castoff_agents_watcher"
}
#if restart
castoff_keep_agents() { # ATTEMPT's folder, the one before: with its agents, unless they are gone or elsewhere
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
  for _ in {1..100}; do # Open MPI's mpiexec takes more than a second, and killed it would leave those of other hosts
    builtin kill -0 "$castoff_agents" 2>/dev/null || return 0
    read -r -t 0.05 -u 9 _ || true
  done 9<> <(:)
  builtin kill -s KILL "$castoff_agents" 2>/dev/null || true
}
