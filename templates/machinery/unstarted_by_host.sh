castoff_unstarted() { # those that have not started, host by host; nothing where all have
  castoff_started | awk -v "most=$castoff_ranks_per_node" -v "full=$castoff_full_nodes" \
    -v "unit=${castoff_first_log%%-*}" '
    BEGIN { first = 0 }
    logs { started[$0 + 0]; next }
    {
      hosts++
      size = most - (hosts > full)
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
readonly -f castoff_unstarted
