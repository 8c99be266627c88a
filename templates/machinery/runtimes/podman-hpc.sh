#if node
unset -v LD_LIBRARY_PATH LD_PRELOAD # the host's, which --env-host would pass on
# Without --, podman-hpc would read the program's flags. CASTOFF_CONTAINER_FLAGS is set by castoff shell.
castoff_words='-- "$castoff_image" /bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@"'
eval "set -- ${CASTOFF_CONTAINER_FLAGS-} $castoff_mounts$castoff_words"
#else
castoff_runtime_name=podman-hpc castoff_bind_flag=--volume castoff_unbindable=:
#endif
