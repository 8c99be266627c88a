castoff_log=node-$(printf %05d "$NODE_RANK").log
exec 3>>"$CASTOFF_LOG_DIR/$castoff_log"
castoff_to_log() { exec </dev/null >&3 2>&1 3>&-; }
castoff_keep_log() { :; }
