# --- The job file's script ------------------------------------------------------------------------
castoff_run_script() { # SHELL...; standard input: the script, which runs once on this host; 3: the script's input
  local castoff_file=$CASTOFF_ATTEMPT_DIR/script
  if [[ -n ${SLURM_JOB_ID-} ]]; then castoff_file=$CASTOFF_ATTEMPT_DIR/slurm_script; fi # Slurm's name of it
  castoff_check_run_dir
#if attempts
  castoff_check_fence
#endif
  trap 'castoff_pass_on HUP' HUP # as the scheduler's shell would pass it to a batch script
  trap 'castoff_pass_on INT' INT
  trap 'castoff_pass_on QUIT' QUIT
  trap 'castoff_pass_on USR1' USR1
  trap 'castoff_pass_on USR2' USR2
  trap 'castoff_pass_on ALRM' ALRM
  (umask 077 && cat >"$castoff_file" && chmod 700 "$castoff_file")
  castoff_link_output
  printf '%(%s)T\n' -1 >"$CASTOFF_ATTEMPT_DIR/launched" || true
#if judged
  echo "$PWD" >"$CASTOFF_ATTEMPT_DIR/folder" || true # where checkpoints are searched
#if guessed
  castoff_note_others
#endif
#endif
  (
    trap - INT QUIT HUP TERM USR1 USR2 ALRM # bash makes background commands ignore some of them
    exec "$@" "$castoff_file" <&3 3<&-
  ) &
  castoff_launcher=$!
#if use
  castoff_record_use
#endif
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
# The script writes to the job's output files, opened by the scheduler; castoff logs finds them by a link.
castoff_link_output() {
  local castoff_out castoff_log=$CASTOFF_LOG_DIR/rank-00000.log
  castoff_out=$(readlink "/proc/$$/fd/1" || true)
  if [[ -f $castoff_out ]]; then
    ln -f -- "$castoff_out" "$castoff_log" 2>/dev/null || ln -sf -- "$castoff_out" "$castoff_log" || true
  fi
}
castoff_keep_output() { # copies the last 10 MB if the link may break, or errors have a separate file
  local castoff_log=$CASTOFF_LOG_DIR/rank-00000.log castoff_fd
  if [[ ! -L $castoff_log && "/proc/$$/fd/1" -ef "/proc/$$/fd/2" ]]; then return 0; fi
  rm -f -- "$castoff_log"
  for castoff_fd in 1 2; do
    if [[ -f /proc/$$/fd/$castoff_fd ]] && [[ $castoff_fd == 1 || ! "/proc/$$/fd/1" -ef "/proc/$$/fd/2" ]]; then
      tail -c 10000000 "/proc/$$/fd/$castoff_fd" >>"$castoff_log" 2>/dev/null || true
    fi
  done
}
castoff_record_code() { # record the script's exit code
  local castoff_signal=null castoff_name
  if ((castoff_code > 128)) && castoff_name=$(builtin kill -l "$castoff_code" 2>/dev/null); then
    castoff_signal="\"SIG$castoff_name\""
  fi
  printf '{"rank": null, "program": "script", "host": "%s", "code": %s, "signal": %s, "log": "%s", "time": %(%s)T}\n' \
    "$(hostname)" "$castoff_code" "$castoff_signal" rank-00000.log -1 >"$CASTOFF_FAILURE_FILE" || true
}
#if signal
#include signal
castoff_watch_signal() { # send the script the job's signal in time, if it handles it
  castoff_signaller=
  if [[ -z ${CASTOFF_DEADLINE:-} ]]; then return 0; fi
  (
    exec 9<> <(:) # 9 never has input
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
#if use
#include use
#endif
