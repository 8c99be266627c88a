castoff_activate() { # the program's own shell expands it; env would take a name with = for a variable
  # shellcheck disable=SC2016
  castoff_round=(sh -c 'PATH=$1 && shift && exec "$@"' sh "$castoff_staged_path$PATH")
}
castoff_at_start+=(castoff_activate)
readonly -f castoff_activate
