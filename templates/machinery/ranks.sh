castoff_last_to_end="rank 0"
castoff_place() { castoff_place_ranks; }
readonly -f castoff_place
