castoff_terminate_ranks() { # on TERM this launcher would kill them
  : >>"$CASTOFF_ATTEMPT_DIR/terminated" # so that ranks know what USR1 means
  builtin kill -s USR1 "$castoff_launcher"
}
readonly -f castoff_terminate_ranks
