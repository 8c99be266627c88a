castoff_terminate_ranks() { builtin kill -s TERM "$castoff_starter"; }
readonly -f castoff_terminate_ranks
