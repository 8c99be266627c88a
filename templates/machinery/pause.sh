castoff_pause() { # SECONDS; unlike sleep it lets a trap run meanwhile, and is no process that could stay behind
  if (($1 > 0)); then read -r -t "$1" _ <> <(:) || true; fi
}
readonly -f castoff_pause
