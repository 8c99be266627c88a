castoff_pause() { # SECONDS; unlike sleep it lets a trap run meanwhile, and leaves no process behind
  if (($1 > 0)); then read -r -t "$1" _ <> <(:) || true; fi
}
readonly -f castoff_pause
