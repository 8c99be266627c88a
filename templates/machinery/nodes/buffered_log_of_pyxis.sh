# So many files in one folder would hurt the file system: one a node, and those of ranks that fail.
if [ "$LOCAL_RANK" -eq 0 ]; then
  castoff_log=node-$(printf %05d "$NODE_RANK").log
  exec 3>>"$CASTOFF_LOG_DIR/$castoff_log" 4</dev/null
else
  castoff_log=rank-$(printf %05d "$RANK").log
  castoff_buffer=$(mktemp "/tmp/castoff-rank.XXXXXX") || exit 1
  exec 3>>"$castoff_buffer"
  exec 4<"$castoff_buffer"
  rm -f "$castoff_buffer" # no name, so it goes with its last user
fi
castoff_to_log() { exec </dev/null >&3 2>&1 3>&- 4<&-; }
castoff_keep_log() { [ "$LOCAL_RANK" -eq 0 ] || tail -c 1000000 <&4 >"$CASTOFF_LOG_DIR/$castoff_log"; }
