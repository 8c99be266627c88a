# Others' logs show that they have started; the first one's was there before.
[ "$castoff_process" -ne 0 ] || rm -f "$CASTOFF_ATTEMPT_DIR/starting"
