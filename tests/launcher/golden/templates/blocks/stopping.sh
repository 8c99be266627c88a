# --- What asks it to stop -------------------------------------------------------------------------
castoff_launcher='' castoff_signalled='' castoff_terminated='' castoff_asked=''
castoff_listen() {
  trap castoff_terminate TERM INT HUP
#ifdef castoff_scheduler_listen
  castoff_scheduler_listen
#endif
  trap 'castoff_signalled=1; : >>"$CASTOFF_STOP_FILE" || true' USR2
}
castoff_terminate() { # somebody ends this job: the ranks may still save what they have
  castoff_signalled=1 castoff_terminated=1
  if [[ -z $castoff_launcher ]]; then
    castoff_ending=cancelled
    exit 143
  fi
#if usr1
  # On TERM this launcher would kill them. The file tells ranks what USR1 means.
  { : >>"$CASTOFF_ATTEMPT_DIR/terminated" && builtin kill -s USR1 "$castoff_launcher"; } 2>/dev/null || true
#else
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true
#endif
}
#if deadline
castoff_ask_in_time() { # nobody else asks for a stop in time
  local castoff_now
  printf -v castoff_now '%(%s)T' -1
  if [[ -z $CASTOFF_DEADLINE ]] || ((castoff_now < CASTOFF_DEADLINE - CASTOFF_GRACE)); then return 0; fi
  castoff_asked=1
  : >>"$CASTOFF_STOP_FILE" || true
}
#endif
castoff_wait() { # for castoff_launcher, whatever signals come; leaves its code in castoff_code
  # bash may lose the code of what a signal ends while wait waits for it: so that asks when it has ended.
  while builtin kill -0 "$castoff_launcher" 2>/dev/null; do # ours
    read -r -t 0.1 -u 9 _ || true # nothing ever comes; traps run meanwhile
#if deadline
    if [[ -z $castoff_asked ]]; then castoff_ask_in_time; fi
#endif
#ifdef castoff_watch_ranks
    if ((castoff_watch_due && SECONDS >= castoff_watch_due)); then castoff_watch_ranks; fi
#endif
  done 9<> <(:)
  castoff_signalled=1
  while [[ -n $castoff_signalled ]]; do # a signal ends wait alone
    castoff_signalled='' castoff_code=0
    builtin wait "$castoff_launcher" || castoff_code=$?
  done
}
