#if node
eval "set -- $castoff_mounts"'/bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@"'
#else
castoff_runtime_name=shifter castoff_bind_flag=--volume
#endif
