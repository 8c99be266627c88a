castoff_record_use() { # while this process lives, record what the job uses here, if castoff submit has added use.py
  [ -O "${CASTOFF_RUN_DIR-}/use.py" ] || return 0
  env -u CASTOFF_ATTEMPT_DIR -u RANK PATH="/usr/bin:$PATH" python3 -ISB "$CASTOFF_RUN_DIR/use.py" \
#if together | here
    "$CASTOFF_ATTEMPT_DIR" "${NODE_RANK:-0}" "${castoff_nodes:-1}" "$$" shared </dev/null >/dev/null 2>&1 3>&- 4>&- &
#else
    "$CASTOFF_ATTEMPT_DIR" "${NODE_RANK:-0}" "${castoff_nodes:-1}" "$$" </dev/null >/dev/null 2>&1 3>&- 4>&- &
#endif
}
