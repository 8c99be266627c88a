# --- Requests to stop -----------------------------------------------------------------------------
castoff_launcher='' castoff_signalled='' castoff_terminated='' castoff_asked=''
castoff_listen() {
  trap castoff_terminate TERM INT HUP
#ifdef castoff_scheduler_listen
  castoff_scheduler_listen
#endif
  trap 'castoff_signalled=1; : >>"$CASTOFF_STOP_FILE" || true' USR2
#if signal
  castoff_chosen_number=$(builtin kill -l "$castoff_chosen_signal")
#endif
}
castoff_terminate() { # the job is being ended: let the ranks save
  castoff_signalled=1 castoff_terminated=1
#if teardown
  if [[ -n $castoff_tearing_down ]]; then # the ranks have ended: record that before this script is killed
    castoff_record_torn
    return
  fi
#endif
  if [[ -z $castoff_launcher ]]; then
    castoff_ending=cancelled
    exit 143
  fi
#if usr1
  # On TERM this launcher would kill the ranks. The file shows them what the signal means.
#if usr2
  { : >>"$CASTOFF_ATTEMPT_DIR/terminated" && builtin kill -s USR2 "$castoff_launcher"; } 2>/dev/null || true
#else
  { : >>"$CASTOFF_ATTEMPT_DIR/terminated" && builtin kill -s USR1 "$castoff_launcher"; } 2>/dev/null || true
#endif
#elif stage restart
  : >"$CASTOFF_ATTEMPT_DIR/terminated" || true # a rank then removes the staged files
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true
#else
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true
#endif
}
#if teardown
castoff_hurry_at=
# Called regularly while the ranks run, but not in a trap: a process that bash 5.2 forks in a trap may run on as this
# script.
castoff_leave_time() { # a program that ignores TERM gets half of the time before the scheduler kills the job
  if [[ -z $castoff_terminated || -n $castoff_tearing_down || $castoff_hurry_at == over ]]; then return 0; fi
  if [[ -z $castoff_hurry_at ]]; then
    castoff_hurry_at=$SECONDS
    local castoff_delay
    castoff_delay=$(castoff_scheduler_kill_delay || true) # empty if it was ended with this job
    castoff_hurry_at=$((castoff_hurry_at + ${castoff_delay:-10} / 2))
  fi
  if ((SECONDS < castoff_hurry_at)); then return 0; fi
  castoff_hurry_at=over
  echo "castoff: the program is still running, and is killed: teardown needs the time that is left" >&2
  castoff_kill_ranks
}
#endif
#if teardown | expiry
castoff_kill_ranks() { # kill ranks that TERM has not ended
#if here
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true # a second TERM makes it kill its ranks
#elif driver
  local castoff_children=()
  read -r -a castoff_children <"/proc/$castoff_launcher/task/$castoff_launcher/children" || true # it has no newline
  builtin kill -s KILL "${castoff_children[@]}" 2>/dev/null || true
#else
#ifdef castoff_launcher_cancel
  castoff_launcher_cancel
#else
  builtin kill -s KILL "$castoff_launcher" 2>/dev/null || true
#endif
#endif
}
#endif
#if expiry | signal here !torchrun
# --- Actions before the walltime ------------------------------------------------------------------
castoff_expired='' castoff_killed='' # how the ranks were ended for the walltime; whether by KILL
#if signal here !torchrun
castoff_look_at=0 castoff_delivered_to=' '
#endif
# Called regularly while the ranks run, not in a trap: a process that bash 5.2 forks in a trap may run on as this one.
castoff_watch_clock() {
  local castoff_left
#if teardown
  if [[ -n $castoff_tearing_down ]]; then return 0; fi
#endif
  if [[ -z ${CASTOFF_DEADLINE:-} || -s $CASTOFF_FAILURE_FILE ]]; then return 0; fi
  printf -v castoff_left '%(%s)T' -1
  castoff_left=$((CASTOFF_DEADLINE - castoff_left))
#if signal here !torchrun
  if ((castoff_left <= castoff_signal_before && SECONDS >= castoff_look_at)); then
    castoff_look_at=$((SECONDS + 5))
    castoff_signal_ranks
  fi
#endif
#if expiry
  if [[ -z $castoff_expired ]]; then
    if [[ -n $castoff_terminated ]] || ((castoff_left > castoff_margin)); then return 0; fi
#ifdef castoff_scheduler_end_now
    if castoff_is_prolonged; then return 0; fi
#endif
    castoff_expired="still running $castoff_left s before the walltime, so castoff ended it"
    echo "castoff: the program is still running $castoff_left s before the walltime, and is ended" >&2
    castoff_terminate
  elif [[ -z $castoff_killed ]] && ((castoff_left <= castoff_margin * 2 / 3)); then
    castoff_killed=1
    castoff_kill_ranks
  fi
#endif
}
#endif
#if deadline
castoff_ask_in_time() { # PBS sends no signal before the walltime, and Slurm's may be late (22.05.8, on a busy machine)
  local castoff_now
  printf -v castoff_now '%(%s)T' -1
  if [[ -z $CASTOFF_DEADLINE ]] || ((castoff_now < CASTOFF_DEADLINE - CASTOFF_GRACE)); then return 0; fi
#ifdef castoff_scheduler_end_now
  if [[ ! -e $CASTOFF_STOP_FILE ]] && castoff_is_prolonged; then return 0; fi
#endif
  castoff_asked=1
  : >>"$CASTOFF_STOP_FILE" || true
}
#ifdef castoff_scheduler_end_now
castoff_is_prolonged() { # whether the job's time limit was extended
  local castoff_end
  castoff_end=$(castoff_scheduler_end_now)
  ((${castoff_end:-0} > CASTOFF_DEADLINE)) && CASTOFF_DEADLINE=$castoff_end
}
#endif
#endif
castoff_wait() { # wait for castoff_launcher, running traps meanwhile; sets castoff_code
  # bash may lose the code of a process that a signal ends during wait, so wait is called after its end.
  while builtin kill -0 "$castoff_launcher" 2>/dev/null; do
#if fence
    if ((SECONDS >= castoff_fence_due)); then castoff_check_fence; fi
#endif
    read -r -t 0.1 -u 9 _ || true # 9 never has input; traps run meanwhile
#if deadline
    if [[ -z $castoff_asked ]]; then castoff_ask_in_time; fi
#endif
#ifdef castoff_watch_ranks
    if ((castoff_watch_due && SECONDS >= castoff_watch_due)); then castoff_watch_ranks; fi
#endif
#if teardown
    castoff_leave_time
#endif
#if expiry | signal here !torchrun
    castoff_watch_clock
#endif
  done 9<> <(:)
  castoff_signalled=1
  while [[ -n $castoff_signalled ]]; do # a signal interrupts wait
    castoff_signalled='' castoff_code=0
    builtin wait "$castoff_launcher" 2>/dev/null || castoff_code=$? # bash would report Killed or Terminated
  done
#if attempts | fence teardown
  castoff_check_fence # the next attempt's fence may have ended it
#endif
#if by_ssh nodes
  if [[ -n $castoff_all_ended ]]; then castoff_code=0; fi
#endif
}
