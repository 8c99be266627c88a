castoff_resolves() { # NAME. getent says 2 where nobody knows it; without getent nobody has said no
  castoff_said=0
  timeout 5 getent ahosts "$1" >/dev/null 2>&1 || castoff_said=$?
  [ "$castoff_said" -ne 2 ] && [ "$castoff_said" -ne 124 ]
}
if [ "$castoff_process" -eq 0 ] && [ "${castoff_node:-$castoff_meeting_host}" != "$castoff_meeting_host" ]; then
  castoff_refuse "rank 0 runs on $castoff_node, but the ranks are to meet on $castoff_meeting_host, the job's first" \
    "host: leave out what moves rank 0 (launcher.args, SLURM_HOSTFILE), or use --distribution=arbitrary"
fi
for castoff_name in "$MASTER_ADDR" $castoff_meeting_names ''; do
  if [ -z "$castoff_name" ]; then
    castoff_tried=$(echo "$MASTER_ADDR $castoff_meeting_names" | tr '\n' ' ')
    castoff_refuse "$(hostname) knows no address of rank 0's host, so the ranks cannot meet; it tried $castoff_tried;" \
      "the site's master_suffix is what follows a host's short name"
  fi
  ! castoff_resolves "$castoff_name" || break
done
export MASTER_ADDR="$castoff_name"
