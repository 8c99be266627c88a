castoff_terminate_ranks() { builtin kill -s TERM "$castoff_launcher"; }
readonly -f castoff_terminate_ranks
