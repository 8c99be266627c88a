# --- Rendezvous: sets MASTER_ADDR and MASTER_PORT -------------------------------------------------
castoff_rendezvous() { # [SUFFIX of host names]
  local castoff_count castoff_sum
#if restart
  castoff_suffix=${1-} # kept for the next attempt
#endif
#if spares
  if [[ -z $castoff_fit ]]; then castoff_find_hosts; fi
  if ! castoff_enough_hosts; then castoff_end_without_hosts; fi
#elif preflight
  castoff_scheduler_hosts >"$CASTOFF_ATTEMPT_DIR/hosts"
  castoff_count=$(wc -l <"$CASTOFF_ATTEMPT_DIR/hosts")
  if [[ -z $castoff_fit ]] && ((castoff_count == castoff_nodes)); then
    castoff_find_hosts
    if ! castoff_enough_hosts; then castoff_end_without_hosts; fi
  fi
#else
  castoff_scheduler_hosts >"$CASTOFF_ATTEMPT_DIR/hosts"
  castoff_count=$(wc -l <"$CASTOFF_ATTEMPT_DIR/hosts")
#endif
#if spares
  head -n "$castoff_nodes" <<<"$castoff_fit" >"$CASTOFF_ATTEMPT_DIR/hosts"
#else
  if ((castoff_count != castoff_nodes)); then
#if nodes
    echo "castoff: this script is for $castoff_nodes hosts, but the job has $((castoff_count)):" >&2
#else
    echo "castoff: this script is for 1 host, but the job has $((castoff_count)):" >&2
#endif
    cat "$CASTOFF_ATTEMPT_DIR/hosts" >&2
    echo "castoff: render it anew with --nodes $((castoff_count))" >&2
    exit 1
  fi
#endif
#if nodes
  export MASTER_ADDR MASTER_PORT
  castoff_name_meeting "${1-}"
#else
  export MASTER_ADDR=127.0.0.1 MASTER_PORT # all ranks are on this host
#endif
#if together
  castoff_sum=$(echo "$castoff_mark" | cksum)
  MASTER_PORT=$((20000 + (${castoff_sum%% *} + CASTOFF_SLOT_PORT) % 10000)) # no other slot has it
#else
  castoff_sum=$(echo "$CASTOFF_ATTEMPT_DIR" | cksum) # gives each start a new port, also within a job
  MASTER_PORT=$((20000 + ${castoff_sum%% *} % 10000))
#endif
  for _ in {1..50}; do # a port that accepts a connection is in use; bash -p does not read BASH_ENV
#if nodes
    timeout 5 bash -pc ': <>"/dev/tcp/$0/$1"' "$castoff_meeting_host" "$MASTER_PORT" 2>/dev/null || break
#else
    timeout 5 bash -pc ': <>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT"' 2>/dev/null || break
#endif
#if together
    MASTER_PORT=$((20000 + (MASTER_PORT + castoff_at_once) % 10000)) # nor that
#else
    MASTER_PORT=$((20000 + (MASTER_PORT + 1) % 10000))
#endif
  done
}
#if driver
castoff_export_hosts() { # CORES DEVICES of each host; CORES 0: as many as this host has
  export CASTOFF_HOST_FILE=$CASTOFF_ATTEMPT_DIR/hosts CASTOFF_NODES=$castoff_nodes CASTOFF_HOSTS
  export CASTOFF_CORES_PER_NODE=$1 CASTOFF_DEVICES_PER_NODE=$2
  CASTOFF_HOSTS=$(tr '\n' , <"$CASTOFF_HOST_FILE")
  CASTOFF_HOSTS=${CASTOFF_HOSTS%,}
  if ((!$1)); then # according to Slurm, PBS, or their limits
    CASTOFF_CORES_PER_NODE=${SLURM_CPUS_ON_NODE:-${NCPUS:-$(env -u OMP_NUM_THREADS nproc)}}
  fi
}
#endif
#if nodes
castoff_name_meeting() { # SUFFIX: lists names of rank 0's host; each rank uses the first that it can resolve
  local castoff_here castoff_short
#ifdef castoff_launcher_host_of_rank_0
  castoff_meeting_host=$(castoff_launcher_host_of_rank_0)
#else
  castoff_meeting_host=$(sed -n 1p "$CASTOFF_ATTEMPT_DIR/hosts")
#endif
  castoff_here=$(hostname) castoff_short=${castoff_meeting_host%%.*}
  if [[ $castoff_meeting_host =~ ^[0-9.]+$|: ]]; then castoff_short=$castoff_meeting_host && set -- ''; fi # an address
  MASTER_ADDR=$castoff_short$1
  castoff_meeting_names=$(
    {
      printf '%s\n' "$MASTER_ADDR" "$castoff_short" "$castoff_meeting_host"
      timeout 5 getent ahosts "$castoff_meeting_host" || timeout 5 getent ahosts "$castoff_short" || true
      if [[ ${castoff_here%%.*} == "$castoff_short" ]]; then hostname -I || true; fi
    } 2>/dev/null | awk '{ # skip loopback and link-local addresses
      for (i = 1; i <= NF; i++)
        if ((NR <= 3 || $i ~ /[.:]/ && $i !~ /^(127\.|::1$|fe80:|localhost)/) && !seen[$i]++) print $i
    }'
  )
}
#endif
