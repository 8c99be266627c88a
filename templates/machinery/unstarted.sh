# --- Ranks that do not start ----------------------------------------------------------------------
castoff_check_start() { # each second until all ranks have started: report those missing; end the job after the timeout
  local castoff_waited=$((SECONDS - castoff_began)) castoff_before=$castoff_missing castoff_patience=20
  if ((castoff_start_timeout && castoff_start_timeout < 40)); then castoff_patience=$((castoff_start_timeout / 2)); fi
  if ((castoff_waited < castoff_patience)) || [[ ! -d $CASTOFF_LOG_DIR || -s $CASTOFF_FAILURE_FILE ]]; then return 0; fi
  castoff_missing=$(castoff_unstarted)
  if [[ -z $castoff_missing ]]; then
    castoff_all_started=1
    if [[ -n $castoff_before ]]; then echo "castoff: after $castoff_waited s all have started" >&2; fi
    return 0
  fi
  if [[ -z $castoff_before ]]; then
    echo "castoff: after $castoff_waited s these have not started: $castoff_missing" >&2
    castoff_launcher_advise
    if ((castoff_start_timeout)); then
      echo "castoff: if they have not after $castoff_start_timeout s (launcher.timeout), the job is ended" >&2
    fi
  fi
  if ((castoff_start_timeout && castoff_waited >= castoff_start_timeout)); then
    echo "castoff: the job is ended: launcher.timeout is $castoff_start_timeout s," \
      "and after $castoff_waited s these have not started: $castoff_missing" >&2
    : >"$CASTOFF_ATTEMPT_DIR/unstarted"
    castoff_end_launcher
  fi
}
castoff_started() { # prints the number of each rank that has started, known from its log
  local castoff_waits=
  if [[ -e $CASTOFF_ATTEMPT_DIR/starting ]]; then castoff_waits=$castoff_first_log; fi # it existed before
  # NFS may show a folder as of a minute ago, unless this host has changed it since.
  { : >"$CASTOFF_LOG_DIR/.look" && rm "$CASTOFF_LOG_DIR/.look"; } 2>/dev/null || true
  find "$CASTOFF_LOG_DIR" -name "${castoff_first_log%%-*}-*.log" ! -name "$castoff_waits" -printf '%f\n' 2>/dev/null |
    tr -cd '0-9\n' || true
}
#if distribution
castoff_unstarted() { # prints the ranks that have not started, if any; only srun knows their hosts
  local castoff_unit=${castoff_first_log%%-*} castoff_count=$castoff_ranks
  if [[ $castoff_unit == node ]]; then castoff_count=$castoff_nodes; fi
  castoff_started | awk -v "unit=$castoff_unit" -v "count=$castoff_count" '{ started[$0 + 0] } END {
    for (i = 0; i < count; i++)
      if (!(i in started) && shown++ < 16) text = text (text == "" ? "" : ", ") i
    if (shown) print unit (shown > 1 ? "s " : " ") text (shown > 16 ? " and " (shown - 16) " others" : "")
  }'
}
#else
castoff_unstarted() { # prints the ranks that have not started, host by host, if any
#if groups
  castoff_started | awk -v "groups=$castoff_groups" \
#else
  castoff_started | awk -v "most=$castoff_ranks_per_node" -v "full=$castoff_full_nodes" \
#endif
    -v "unit=${castoff_first_log%%-*}" '
    BEGIN { first = 0 }
    logs { started[$0 + 0]; next }
    {
      hosts++
#if groups
      while (hosts > nodes) { split(groups, all); split(all[++group], one, "x"); nodes += one[1] }
      size = one[2]
#else
      size = most - (hosts > full)
#endif
      ranks = ""
      missing = 0
      for (rank = first + size - 1; rank >= first; rank--)
        if (!((unit == "rank" ? rank : hosts - 1) in started)) {
          ranks = rank (missing++ ? ", " : "") ranks
        }
      if (missing > 2 && missing == size) ranks = first "-" (first + size - 1)
      first += size
      if (!missing || shown++ >= 8) next
      text = text (text == "" ? "" : ", ") $0 " (rank" (missing > 1 ? "s " : " ") ranks ")"
    }
    END { if (shown) print text (shown > 8 ? " and those of " (shown - 8) " other hosts" : "") }
  ' logs=1 - logs=0 "$CASTOFF_ATTEMPT_DIR/hosts"
}
#endif
