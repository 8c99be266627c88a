# --- Ranks that do not start ----------------------------------------------------------------------
castoff_mark_start() { : >"$CASTOFF_ATTEMPT_DIR/starting" || true; } # the first rank removes it
castoff_watch_start() {
  castoff_await_start 9<> <(:) & # 9 never says anything
  castoff_start_watcher=$!
  disown "$castoff_start_watcher"
}
castoff_await_start() {
  local castoff_began castoff_waited castoff_patience=20 castoff_missing='' castoff_before
  castoff_began=$(date +%s)
  if ((castoff_start_timeout && castoff_start_timeout < 40)); then
    castoff_patience=$((castoff_start_timeout / 2))
  fi
  read -r -t "$castoff_patience" -u 9 _ || true
  while castoff_starts; do
    castoff_waited=$(($(date +%s) - castoff_began)) castoff_before=$castoff_missing
    castoff_missing=$(castoff_unstarted)
    if [[ -z $castoff_missing ]]; then
      if [[ -n $castoff_before ]]; then echo "castoff: after $castoff_waited s all have started" >&2; fi
      return
    fi
    if ((castoff_start_timeout && castoff_waited >= castoff_start_timeout)); then
      echo "castoff: the job is ended: launcher.timeout is $castoff_start_timeout s," \
        "and after $castoff_waited s these have not started: $castoff_missing" >&2
      : >"$CASTOFF_ATTEMPT_DIR/unstarted"
      castoff_end_launcher
      return
    fi
    if [[ -z $castoff_before ]]; then
      echo "castoff: after $castoff_waited s these have not started: $castoff_missing" >&2
      castoff_advise
      if ((castoff_start_timeout)); then
        echo "castoff: if they have not after $castoff_start_timeout s (launcher.timeout), the job is ended" >&2
      fi
    fi
    read -r -t 1 -u 9 _ || true
  done
}
castoff_starts() { # whether there is something to wait for
  builtin kill -0 "$castoff_launcher" 2>/dev/null && [[ -d $CASTOFF_LOG_DIR && ! -s $CASTOFF_FAILURE_FILE ]]
}
castoff_end_start_watch() { builtin kill -s KILL "$castoff_start_watcher" 2>/dev/null || true; }
castoff_judge_start() { # the launcher's code says only that it was ended
  if [[ -e $CASTOFF_ATTEMPT_DIR/unstarted ]]; then castoff_code=1; fi
}
castoff_started() { # the number of each that has started: it has opened its log; the first, removed a mark
  # NFS may show a folder as it was a minute ago, but not one that this host has changed since.
  { : >"$CASTOFF_LOG_DIR/.look" && rm "$CASTOFF_LOG_DIR/.look"; } 2>/dev/null || true
  find "$CASTOFF_LOG_DIR" -name "${castoff_first_log%%-*}-*.log" -printf '%f\n' 2>/dev/null |
    if [[ -e $CASTOFF_ATTEMPT_DIR/starting ]]; then grep -vxF "$castoff_first_log"; else cat; fi |
    sed 's/.*-//' || true
}
castoff_at_start+=(castoff_mark_start)
castoff_beside+=(castoff_watch_start)
castoff_at_over+=(castoff_end_start_watch)
castoff_at_end+=(castoff_judge_start)
readonly -f castoff_mark_start castoff_watch_start castoff_await_start castoff_starts
readonly -f castoff_end_start_watch castoff_judge_start castoff_started
