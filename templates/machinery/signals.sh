# --- What asks it to stop -------------------------------------------------------------------------
castoff_launcher='' castoff_signalled='' castoff_terminated=''
castoff_listen() {
  trap castoff_terminate TERM INT HUP
  trap 'castoff_signalled=1; : >>"$CASTOFF_STOP_FILE" || true' USR2
}
castoff_terminate() { # somebody ends this job: the ranks may still save what they have
  castoff_signalled=1
  castoff_terminated=1
  if [[ -z $castoff_launcher ]]; then
    castoff_ending=cancelled
    exit 143
  fi
  castoff_terminate_ranks 2>/dev/null || true
}
readonly -f castoff_listen castoff_terminate
