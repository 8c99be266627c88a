#if node
unset -v LD_LIBRARY_PATH LD_PRELOAD # the host's; --env-host hands over all that it finds
# podman-hpc would take flags of the program for its own, but for the --. CASTOFF_CONTAINER_FLAGS: castoff shell's.
castoff_words='-- "$castoff_image" /bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@"'
eval "set -- ${CASTOFF_CONTAINER_FLAGS-} $castoff_mounts$castoff_words"
#else
castoff_runtime_name=podman-hpc castoff_bind_flag=--volume castoff_unbindable=:
#endif
