eval "set -- $castoff_mounts"'"$castoff_image" /bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@"'
