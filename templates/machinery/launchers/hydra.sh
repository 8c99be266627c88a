# --- MPICH's mpiexec, a Hydra  ---------------------------------------------------------------------
castoff_launcher_name=hydra castoff_end_node='kill -s KILL $$'
castoff_name_hosts() { # FILE PROCESSES on each of the first NODES, one fewer on the others
  awk -v most="$2" -v full="$3" '{ print $0 ":" most - (NR > full) }' "$CASTOFF_ATTEMPT_DIR/hosts" \
    >"$CASTOFF_ATTEMPT_DIR/$1"
  castoff_flags=(-f "$CASTOFF_ATTEMPT_DIR/$1")
}
castoff_place_ranks() { castoff_name_hosts hostfile "$castoff_ranks_per_node" "$castoff_full_nodes"; }
readonly -f castoff_name_hosts castoff_place_ranks
