castoff_log=rank-$(printf %05d "$RANK").log
exec 3>>"$CASTOFF_LOG_DIR/$castoff_log"
castoff_to_log() { exec </dev/null >&3 2>&1 3>&-; }
castoff_keep_log() { :; }
