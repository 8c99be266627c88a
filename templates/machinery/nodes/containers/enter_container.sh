set -- /bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/container.sh" "$@"
