castoff_terminate_ranks() { # on TERM this starter would kill them
  : >>"$CASTOFF_ATTEMPT_DIR/terminated" # so that ranks know what USR1 means
  builtin kill -s USR1 "$castoff_starter"
}
readonly -f castoff_terminate_ranks
