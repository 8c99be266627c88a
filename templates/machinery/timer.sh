# --- The walltime: nobody else tells its end, or asks for a stop in time ---------------------------
castoff_end_time() { echo $(($(date +%s) + castoff_walltime)); }
castoff_time() {
  ( # read -t, unlike sleep, is no process that could stay behind
    castoff_left=$((CASTOFF_DEADLINE - CASTOFF_GRACE - $(date +%s)))
    if ((castoff_left > 0)); then read -r -t "$castoff_left" _ <> <(:) || true; fi
    : >>"$CASTOFF_STOP_FILE"
  ) &
  castoff_timer=$!
  disown "$castoff_timer" # or bash would tell of its end
}
castoff_end_timer() { # one that has just begun may miss a TERM
  builtin kill -s KILL "$castoff_timer" 2>/dev/null || true
}
castoff_beside+=(castoff_time)
castoff_at_over+=(castoff_end_timer)
readonly -f castoff_end_time castoff_time castoff_end_timer
