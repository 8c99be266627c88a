eval "set -- $castoff_mounts"'/bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@"'
