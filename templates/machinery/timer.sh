# --- The walltime: nobody else asks for a stop in time --------------------------------------------
castoff_timer=
castoff_time() {
  if [[ -z ${CASTOFF_DEADLINE:-} ]]; then return 0; fi
  (
    castoff_pause $((CASTOFF_DEADLINE - CASTOFF_GRACE - $(date +%s)))
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
readonly -f castoff_time castoff_end_timer
