# With restarts left, torchrun starts all ranks again.
if [ "$castoff_code" -ne 0 ] && [ -z "$castoff_told" ] &&
  [ "${TORCHELASTIC_RESTART_COUNT:-0}" -ge "${TORCHELASTIC_MAX_RESTARTS:-0}" ]; then
  castoff_record_failure "$RANK"
fi
