castoff_exec() {
  castoff_to_log
  castoff_prepare
  exec "$@" # so that a program named echo is none of sh's own
}
