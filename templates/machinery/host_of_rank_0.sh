castoff_host_of_rank_0() { sed -n 1p "$CASTOFF_ATTEMPT_DIR/hosts"; }
readonly -f castoff_host_of_rank_0
