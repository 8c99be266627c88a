# --- The walltime holds, also where castoff's scheduler is gone, or never was ----------------------
castoff_enforcer=
castoff_enforce() {
  (
    castoff_pause $((CASTOFF_DEADLINE - $(date +%s)))
    if [[ -z $castoff_alone ]] && castoff_scheduler_lives; then castoff_pause 15; fi # it sees to that itself
    builtin kill -s TERM "$$"
    castoff_pause 10
    builtin kill -s TERM "$castoff_launcher" # the second, which has it kill its ranks
    castoff_pause 10
    builtin kill -s KILL "$castoff_launcher"
  ) &
  castoff_enforcer=$!
  disown "$castoff_enforcer" # or bash would tell of its end
}
castoff_scheduler_lives() { # whether it is still the parent of this script
  local castoff_parent
  castoff_parent=$(cat "/proc/$$/stat" 2>/dev/null) || return 0
  read -r _ castoff_parent _ <<<"${castoff_parent##*) }"
  [[ $castoff_parent == "$PPID" ]]
}
castoff_end_enforcer() { builtin kill -s KILL "$castoff_enforcer" 2>/dev/null || true; }
castoff_beside+=(castoff_enforce)
castoff_at_over+=(castoff_end_enforcer)
readonly -f castoff_enforce castoff_scheduler_lives castoff_end_enforcer
