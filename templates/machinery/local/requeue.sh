castoff_requeue() { # the local scheduler looks for this file
  [[ -z $castoff_alone ]] && : >"$CASTOFF_ATTEMPT_DIR/requeue"
}
readonly -f castoff_requeue
