castoff_end_time() { echo $(($(date +%s) + castoff_walltime)); } # nobody else tells it
readonly -f castoff_end_time
