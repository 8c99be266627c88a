castoff_set_deadline() {
  CASTOFF_DEADLINE=$(castoff_end_time) # seconds since 1970
  export CASTOFF_DEADLINE
  export CASTOFF_GRACE=$castoff_grace # a stop is asked for so many seconds before
}
readonly -f castoff_set_deadline
