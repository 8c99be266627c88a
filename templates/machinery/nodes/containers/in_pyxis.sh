set -- /bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@" # this runs in the container already
castoff_host=${SLURMD_NODENAME:-$(hostname)}
castoff_quiet=1
