set -- "$CASTOFF_ATTEMPT_DIR/container.sh" "$@"
