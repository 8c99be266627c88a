castoff_watch() {
  ( # mpiexec should end the ranks when one has failed. Where it does not, they would wait for that one.
    exec 9<> <(:) # never says anything
    until [[ -s $CASTOFF_FAILURE_FILE ]]; do
      builtin kill -0 "$castoff_launcher" 2>/dev/null || exit 0
      read -r -t 2 -u 9 _ || true
    done
    read -r -t 4 -u 9 _ || true
    builtin kill -0 "$castoff_launcher" 2>/dev/null || exit 0
    echo "castoff: a rank has failed and $castoff_launcher_name keeps the others running, so they are ended" >&2
    castoff_end_launcher
  ) &
  castoff_watcher=$!
  disown "$castoff_watcher"
}
castoff_end_watch() { builtin kill -s KILL "$castoff_watcher" 2>/dev/null || true; }
castoff_beside+=(castoff_watch)
castoff_at_over+=(castoff_end_watch)
readonly -f castoff_watch castoff_end_watch
