castoff_deliver() { # PID: signal the outermost process, of it and its descendants, that handles it; 1: none does
  castoff_todo=$1
  while [ -n "$castoff_todo" ]; do
    castoff_these=$castoff_todo castoff_todo=
    for castoff_one in $castoff_these; do
      if castoff_handles "$castoff_one" && kill -s "$castoff_chosen_signal" "$castoff_one" 2>/dev/null; then
        : >"$CASTOFF_ATTEMPT_DIR/signalled"
        return 0
      fi
      castoff_todo="$castoff_todo$(cat "/proc/$castoff_one/task"/*/children 2>/dev/null)"
    done
  done
  return 1
}
castoff_handles() { # PID: whether it handles the signal, which would otherwise end it
  [ "$(castoff_words "$1")" != "$(castoff_words $$)" ] || return 1 # still this shell, with its traps
  castoff_mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
  [ $((0x0${castoff_mask#????????} >> (castoff_chosen_number - 1) & 1)) -eq 1 ]
}
castoff_words() { tr '\000' ' ' <"/proc/$1/cmdline" 2>/dev/null; }
#if here
castoff_signal_ranks() { # the ranks that castoff launch has started
  local castoff_pid castoff_pids castoff_name
  castoff_pids=$(cat "/proc/$castoff_launcher/task"/*/children 2>/dev/null || true)
  for castoff_pid in $castoff_pids; do
    grep -qsz '^RANK=' "/proc/$castoff_pid/environ" || continue
    if grep -qszE '/preload/(agent|begin)\.py$' "/proc/$castoff_pid/cmdline"; then continue; fi
    castoff_name=$(cat "/proc/$castoff_pid/comm" 2>/dev/null || true)
    if [[ $castoff_name =~ ^castoff:([0-9]+)$ ]]; then castoff_pid=${BASH_REMATCH[1]}; fi # the rank forked by preload
    if [[ $castoff_delivered_to != *" $castoff_pid "* ]] && castoff_deliver "$castoff_pid"; then
      castoff_delivered_to+="$castoff_pid "
    fi
  done
  if [[ $castoff_delivered_to == ' ' ]]; then
    castoff_delivered_to='  ' # a program that installs its handler later still gets it
    echo "castoff: no rank handles SIG$castoff_chosen_signal, so it is not sent: it would end them" >&2
  fi
}
#endif
