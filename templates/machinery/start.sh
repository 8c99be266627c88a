# --- Start of the ranks ---------------------------------------------------------------------------
castoff_start() { # LAUNCHER... RANK_PROGRAM PROGRAM...
  castoff_command=() castoff_flags=()
  while [[ $1 != "$castoff_rank" ]]; do
    castoff_command+=("$1")
    shift
  done
  castoff_place
  castoff_run_hooks "${castoff_at_start[@]}"
  castoff_write_rank
  : >"$CASTOFF_LOG_DIR/$castoff_first_log"
  "${castoff_command[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"} "${castoff_check_run_dir[@]}" "$@" &
  castoff_launcher=$!
  # The others' logs are beside it.
  tail -n +1 -f -s 0.2 --pid="$castoff_launcher" "$CASTOFF_LOG_DIR/$castoff_first_log" &
  castoff_tail=$!
  castoff_run_hooks "${castoff_beside[@]}"
  castoff_wait
  castoff_run_hooks "${castoff_at_over[@]}"
  builtin wait "$castoff_tail" || true
}
castoff_end_launcher() { # what watches beside it does so, and never reads anything from 9
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true
  read -r -t 6 -u 9 _ || true
  builtin kill -s KILL "$castoff_launcher" 2>/dev/null || true
}
castoff_show_failure() {
  local castoff_log castoff_who
  castoff_log=$(castoff_field log)
  castoff_who="rank $(castoff_field rank)"
  if [[ $castoff_who == "rank null" ]]; then castoff_who=$castoff_last_to_end; fi
  echo "castoff: $castoff_who on $(castoff_field host) was the first to fail," \
    "with code $castoff_code; see $CASTOFF_LOG_DIR/$castoff_log" >&2
  if [[ $castoff_log != "$castoff_first_log" ]]; then tail -n 40 "$CASTOFF_LOG_DIR/$castoff_log" >&2 || true; fi
}
castoff_ended_well() { [[ -e $CASTOFF_ATTEMPT_DIR/finished || ! -d $CASTOFF_ATTEMPT_DIR ]]; } # or deleted
castoff_check_success() { # srun exits 0, too, when it loses a node: rank 0 itself has to have said that it ended well
  for _ in {1..10}; do # it may have run on another host
    if castoff_ended_well; then return; fi
    sleep 1
  done
  if ! castoff_ended_well; then
    echo "castoff: $castoff_launcher_name exited with 0, but $castoff_last_to_end did not end: its node was lost" >&2
    castoff_terminated=1
  fi
}
castoff_at_failure+=(castoff_show_failure)
castoff_at_success+=(castoff_check_success)
readonly -f castoff_start castoff_end_launcher castoff_show_failure castoff_ended_well castoff_check_success
