# --- Rendezvous: where the ranks meet -------------------------------------------------------------
castoff_rendezvous() { # [SUFFIX of the hosts' names]
  local castoff_count castoff_plural=s
  castoff_hosts >"$CASTOFF_ATTEMPT_DIR/hosts"
  castoff_count=$(wc -l <"$CASTOFF_ATTEMPT_DIR/hosts")
  if ((castoff_count != castoff_nodes)); then
    if ((castoff_nodes == 1)); then castoff_plural=; fi
    echo "castoff: this script is for $castoff_nodes host$castoff_plural, but the job has $((castoff_count)):" >&2
    cat "$CASTOFF_ATTEMPT_DIR/hosts" >&2
    echo "castoff: render it anew with --nodes $((castoff_count))" >&2
    exit 1
  fi
  export MASTER_ADDR MASTER_PORT
  castoff_choose_address "${1-}"
  castoff_choose_port
}
castoff_choose_port() {
  local castoff_sum
  castoff_sum=$(echo "$CASTOFF_ATTEMPT_DIR" | cksum) # another for each start, also within one job
  MASTER_PORT=$((20000 + ${castoff_sum%% *} % 10000))
  for _ in {1..50}; do # a port that takes a connection is somebody else's
    # shellcheck disable=SC2016 # the inner bash reads the address itself; -p keeps it off BASH_ENV
    timeout 5 bash -pc ': <>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT"' 2>/dev/null || break
    MASTER_PORT=$((20000 + (MASTER_PORT + 1) % 10000))
  done
}
readonly -f castoff_rendezvous castoff_choose_port
