#if node
eval "set -- $castoff_mounts"'"$castoff_image" /bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@"'
#else
castoff_runtime_name=apptainer castoff_bind_flag=--bind castoff_unbindable=':,\^'
#endif
