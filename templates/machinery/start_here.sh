# --- Start of the ranks: by castoff itself --------------------------------------------------------
castoff_start() { # LAUNCHER... -- PROGRAM...
  castoff_command=() castoff_round=()
  while [[ $1 != -- ]]; do
    castoff_command+=("$1")
    shift
  done
  shift
  castoff_run_hooks "${castoff_at_start[@]}"
  ( # bash lets a background command ignore INT and QUIT; the ranks would inherit that
    trap - INT QUIT
    exec "${castoff_command[@]}" --job-id "$castoff_job.$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT" \
      --log-dir "$CASTOFF_LOG_DIR" --failure-file "$CASTOFF_FAILURE_FILE" -- \
      ${castoff_round[@]+"${castoff_round[@]}"} "$@"
  ) &
  castoff_launcher=$!
  castoff_run_hooks "${castoff_beside[@]}"
  castoff_wait
  castoff_run_hooks "${castoff_at_over[@]}"
}
readonly -f castoff_start
