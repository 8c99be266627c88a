castoff_program='' castoff_ended='' # set when this rank was ended from outside: then its code is meaningless
castoff_pass_on() {
  castoff_interrupted=1
  [ -z "$castoff_program" ] || kill -s "$1" "$castoff_program" 2>/dev/null
}
trap 'castoff_ended=1; castoff_pass_on TERM' TERM INT HUP
#if usr2
trap castoff_on_relay USR2
trap 'castoff_pass_on USR1' USR1
#else
trap castoff_on_relay USR1
trap 'castoff_pass_on USR2' USR2
#endif
#if restart | hang
castoff_count_oom_kills() { # prints the count of this rank's control group (cgroups(7)), if there is one
  castoff_oom_kills=
  while IFS=: read -r castoff_kills castoff_kind castoff_group; do
    case $castoff_kind in
      '') castoff_group=/sys/fs/cgroup$castoff_group/memory.events ;;
      memory) castoff_group=/sys/fs/cgroup/memory$castoff_group/memory.oom_control ;;
      *) continue ;;
    esac
    [ -r "$castoff_group" ] || continue
    while read -r castoff_kind castoff_kills; do
      [ "$castoff_kind" != oom_kill ] || castoff_oom_kills=$castoff_kills
    done <"$castoff_group"
  done </proc/self/cgroup
} 2>/dev/null
castoff_count_oom_kills
castoff_oom_kills_before=$castoff_oom_kills
#endif
(castoff_exec "$@") &
castoff_program=$!
#if signal
#include signal
castoff_timer=
if [ -n "${castoff_chosen_signal:-}" ] && [ -n "${CASTOFF_DEADLINE:-}" ]; then
  (
    castoff_number=$RANK # 0 on rank 0 until the message is printed
    trap 'kill "$castoff_sleep"; exit' TERM
    while kill -s 0 "$castoff_program"; do
      castoff_left=$((CASTOFF_DEADLINE - castoff_signal_before - $(date +%s)))
      if [ "$castoff_left" -le 0 ]; then
        ! castoff_deliver "$castoff_program" || exit
        castoff_left=5 # a program that installs its handler later still gets it
        [ "$castoff_number" -ne 0 ] ||
          echo "castoff: rank 0 does not handle SIG$castoff_chosen_signal, so it is not sent: it would end it" \
            >>"$CASTOFF_LOG_DIR/$castoff_log"
        castoff_number=1
      fi
      env -u CASTOFF_ATTEMPT_DIR -u RANK sleep $((castoff_left < 10 ? castoff_left : 10)) & # not the rank's process
      castoff_sleep=$!
      wait "$castoff_sleep"
    done
  ) </dev/null >/dev/null 2>&1 3>&- &
  castoff_timer=$!
fi
#endif
[ -z "$castoff_ended" ] || castoff_pass_on TERM
castoff_code=127 castoff_interrupted=1
while [ -n "$castoff_interrupted" ] || kill -s 0 "$castoff_program" 2>/dev/null; do # a signal interrupts wait
  castoff_interrupted=
  wait "$castoff_program" 2>/dev/null # sh would only print Killed
  castoff_last=$?
  # 127: its code was read before, or the program does not exist. bash 5.2 returns -1 if a signal made it lose the
  # code; then the signal's code is used, since the program most often died of that signal.
  [ "$castoff_last" -ge 0 ] && [ "$castoff_last" -ne 127 ] || break
  castoff_code=$castoff_last
done
#if signal
[ -z "$castoff_timer" ] || kill -s TERM "$castoff_timer" 2>/dev/null
#endif
castoff_record_failure() { # RANK, or null and a program: record the failure, if it is the first (noclobber)
  castoff_signal=null
  [ "$castoff_code" -le 128 ] || ! castoff_name=$(kill -l "$castoff_code" 2>/dev/null) ||
    castoff_signal="\"SIG$castoff_name\""
#if restart | hang
  castoff_count_oom_kills
  [ "$castoff_code" -ne 137 ] || [ "${castoff_oom_kills:-0}" -le "${castoff_oom_kills_before:-0}" ] ||
    castoff_signal="$castoff_signal, \"reason\": \"out-of-memory\""
#endif
  (set -C && printf '{"rank": %s, "host": "%s", "code": %s, "signal": %s, "log": "%s", "time": %s}\n' \
    "$1" "${castoff_host:-$(hostname)}" "$castoff_code" "$castoff_signal" "$castoff_log" "$(date +%s)" \
    >"$CASTOFF_FAILURE_FILE") 2>/dev/null
}
