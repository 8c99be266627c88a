# --- The job's own script -------------------------------------------------------------------------
castoff_run_script() { # SHELL...; standard input: the script, which runs here once; 3: its own standard input
  local castoff_file=$CASTOFF_ATTEMPT_DIR/script
  if [[ -n ${SLURM_JOB_ID-} ]]; then castoff_file=$CASTOFF_ATTEMPT_DIR/slurm_script; fi # as Slurm calls it
  castoff_check_run_dir
#if attempts
  castoff_check_fence
#endif
  trap 'castoff_pass_on HUP' HUP # as the shell of a batch script gets it; and so on
  trap 'castoff_pass_on INT' INT
  trap 'castoff_pass_on QUIT' QUIT
  trap 'castoff_pass_on USR1' USR1
  trap 'castoff_pass_on USR2' USR2
  trap 'castoff_pass_on ALRM' ALRM
  (umask 077 && cat >"$castoff_file" && chmod 700 "$castoff_file")
  castoff_link_output
  printf '%(%s)T\n' -1 >"$CASTOFF_ATTEMPT_DIR/launched" || true
#if judged
  echo "$PWD" >"$CASTOFF_ATTEMPT_DIR/folder" || true # where its progress is looked for
#if guessed
  castoff_note_others
#endif
#endif
  (
    trap - INT QUIT HUP TERM USR1 USR2 ALRM # which bash has what it starts in the background ignore
    exec "$@" "$castoff_file" <&3 3<&-
  ) &
  castoff_launcher=$!
#if signal
  castoff_watch_signal
#endif
#ifdef castoff_scheduler_enforce_walltime
  castoff_scheduler_enforce_walltime
#endif
  castoff_wait
#ifdef castoff_scheduler_enforce_walltime
  builtin kill -s KILL "$castoff_enforcer" 2>/dev/null || true
#endif
#if signal
  builtin kill -s KILL "$castoff_signaller" 2>/dev/null || true
#endif
  if ((castoff_code)) && [[ -z $castoff_terminated ]]; then castoff_record_code; fi
  castoff_keep_output
}
castoff_pass_on() { # SIGNAL
  castoff_signalled=1
  if [[ -n $castoff_launcher ]]; then builtin kill -s "$1" "$castoff_launcher" 2>/dev/null || true; fi
}
# Its output is the job's, in the files that the scheduler has opened. castoff logs finds it by another name of these.
castoff_link_output() {
  local castoff_out castoff_log=$CASTOFF_LOG_DIR/rank-00000.log
  castoff_out=$(readlink "/proc/$$/fd/1" || true)
  if [[ -f $castoff_out ]]; then
    ln -f -- "$castoff_out" "$castoff_log" 2>/dev/null || ln -sf -- "$castoff_out" "$castoff_log" || true
  fi
}
castoff_keep_output() { # a link to another disk may lead nowhere soon, and errors may have a file: the last 10 MB
  local castoff_log=$CASTOFF_LOG_DIR/rank-00000.log castoff_fd
  if [[ ! -L $castoff_log && "/proc/$$/fd/1" -ef "/proc/$$/fd/2" ]]; then return 0; fi
  rm -f -- "$castoff_log"
  for castoff_fd in 1 2; do
    if [[ -f /proc/$$/fd/$castoff_fd ]] && [[ $castoff_fd == 1 || ! "/proc/$$/fd/1" -ef "/proc/$$/fd/2" ]]; then
      tail -c 10000000 "/proc/$$/fd/$castoff_fd" >>"$castoff_log" 2>/dev/null || true
    fi
  done
}
castoff_record_code() { # of the script
  local castoff_signal=null castoff_name
  if ((castoff_code > 128)) && castoff_name=$(builtin kill -l "$castoff_code" 2>/dev/null); then
    castoff_signal="\"SIG$castoff_name\""
  fi
  printf '{"rank": null, "program": "script", "host": "%s", "code": %s, "signal": %s, "log": "%s", "time": %(%s)T}\n' \
    "$(hostname)" "$castoff_code" "$castoff_signal" rank-00000.log -1 >"$CASTOFF_FAILURE_FILE" || true
}
#if signal
#include signal
castoff_watch_signal() { # sends the script the job's signal in time, if it handles it
  castoff_signaller=
  if [[ -z ${CASTOFF_DEADLINE:-} ]]; then return 0; fi
  (
    exec 9<> <(:) # never says anything
    while builtin kill -0 "$castoff_launcher" 2>/dev/null; do
      printf -v castoff_now '%(%s)T' -1
      if ((castoff_now >= CASTOFF_DEADLINE - castoff_signal_before)) && castoff_deliver "$castoff_launcher"; then exit; fi
      read -r -t 1 -u 9 _ || true
    done
  ) &
  castoff_signaller=$!
  disown "$castoff_signaller"
}
#endif
