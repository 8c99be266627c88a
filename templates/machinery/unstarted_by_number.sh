castoff_unstarted() { # those that have not started; nothing where all have. Where they are, srun alone knows
  local castoff_unit=${castoff_first_log%%-*} castoff_count=$castoff_ranks
  if [[ $castoff_unit == node ]]; then castoff_count=$castoff_nodes; fi
  castoff_started | awk -v "unit=$castoff_unit" -v "count=$castoff_count" '{ started[$0 + 0] } END {
    for (i = 0; i < count; i++)
      if (!(i in started) && shown++ < 16) text = text (text == "" ? "" : ", ") i
    if (shown) print unit (shown > 1 ? "s " : " ") text (shown > 16 ? " and " (shown - 16) " others" : "")
  }'
}
readonly -f castoff_unstarted
