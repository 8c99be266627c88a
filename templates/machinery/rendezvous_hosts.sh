castoff_choose_address() { # SUFFIX. The host of rank 0, by a name that resolves here; rank.sh asks the other hosts
  local castoff_name castoff_short
  castoff_meeting_host=$(castoff_host_of_rank_0)
  castoff_short=${castoff_meeting_host%%.*}
  castoff_meeting_names=$castoff_meeting_host MASTER_ADDR=$castoff_meeting_host
  if [[ $castoff_meeting_host =~ ^[0-9.]+$|: ]]; then return; fi # an address
  MASTER_ADDR=$castoff_short$1
  castoff_meeting_names=$(
    {
      printf '%s\n' "$MASTER_ADDR" "$castoff_short" "$castoff_meeting_host"
      castoff_other_names
    } | awk '!seen[$0]++'
  )
  for castoff_name in $castoff_meeting_names; do
    if castoff_resolves "$castoff_name"; then
      MASTER_ADDR=$castoff_name
      break
    fi
  done
}
castoff_resolves() { # NAME. getent says 2 where nobody knows it; without getent nobody has said no
  local castoff_said=0
  timeout 5 getent ahosts "$1" >/dev/null 2>&1 || castoff_said=$?
  ((castoff_said != 2 && castoff_said != 124))
}
castoff_other_names() { # its full name and its addresses, but those that mean whichever host asks
  local castoff_here
  castoff_here=$(hostname)
  {
    timeout 5 getent ahosts "$castoff_meeting_host" || timeout 5 getent ahosts "$castoff_short" || true
    if [[ ${castoff_here%%.*} == "$castoff_short" ]]; then hostname -I || true; fi
  } 2>/dev/null | awk '{
    for (i = 1; i <= NF; i++) if ($i ~ /[.:]/ && $i !~ /^(127\.|::1$|fe80:|localhost)/) print $i
  }'
}
readonly -f castoff_choose_address castoff_resolves castoff_other_names
