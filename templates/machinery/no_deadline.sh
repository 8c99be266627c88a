castoff_set_deadline() { unset -v CASTOFF_DEADLINE CASTOFF_GRACE; } # no walltime; these would be a parent job's
readonly -f castoff_set_deadline
