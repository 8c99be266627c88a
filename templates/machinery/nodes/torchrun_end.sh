if [ "$castoff_code" -ne 0 ] && [ -z "$castoff_told" ]; then
  # torchrun_rank.sh has told which rank it was, unless that was killed with its rank; then torchrun itself knows.
  castoff_cause=$(awk '/^Root Cause \(first observed failure\):/ { told = 1; rank = code = "" }
    told && $1 == "rank" { rank = $3 }
    told && $1 == "exitcode" { code = $3 < 0 ? 128 - $3 : $3; told = 0 }
    END { if (rank ~ /^[0-9]+$/ && code ~ /^[0-9]+$/ && code > 0 && code < 256) print rank, code }
  ' "$CASTOFF_LOG_DIR/$castoff_log")
  [ -z "$castoff_cause" ] || castoff_code=${castoff_cause#* }
  castoff_cause=${castoff_cause% *}
  castoff_record_failure "${castoff_cause:-null}"
  castoff_end_others
fi
[ "$castoff_code" -ne 0 ] || [ "$NODE_RANK" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/finished") 2>/dev/null
