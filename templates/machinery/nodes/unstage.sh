# The last rank of a node removes what was staged there: in a job that is being ended nobody else can.
mkdir "$CASTOFF_STAGE_DIR/.castoff-end-$castoff_local" 2>/dev/null
set -- "$CASTOFF_STAGE_DIR"/.castoff-end-*
if [ "$#" -ge "$castoff_count" ]; then
  castoff_limit=60
  [ -z "$castoff_told" ] || castoff_limit=4
  (
    [ -z "${castoff_quiet:-}" ] || exec 2>/dev/null
    exec timeout "$castoff_limit" /bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/stage.sh" \
      clean "$CASTOFF_STAGE_DIR" ""
  ) &
  castoff_program=$!
  while kill -s 0 "$castoff_program" 2>/dev/null; do wait "$castoff_program"; done
fi
