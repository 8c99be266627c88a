if [ "$castoff_code" -ne 0 ] && [ -z "$castoff_told" ]; then
  castoff_keep_log
  castoff_record_failure "$RANK"
  castoff_end_others
fi
[ "$castoff_code" -ne 0 ] || [ "$RANK" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/finished") 2>/dev/null
