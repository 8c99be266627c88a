castoff_host_of_rank_0() { head -n 1 "$CASTOFF_ATTEMPT_DIR/hosts"; }
readonly -f castoff_host_of_rank_0
