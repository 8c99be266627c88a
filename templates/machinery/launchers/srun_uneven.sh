# --- srun, with more ranks on some nodes ----------------------------------------------------------
castoff_launcher_name=srun castoff_end_node='exit 1'
castoff_name_hosts() { :; } # it knows them
castoff_place_ranks() {
  awk -v most="$castoff_ranks_per_node" -v full="$castoff_full_nodes" \
    '{ for (i = NR > full; i < most; i++) print }' "$CASTOFF_ATTEMPT_DIR/hosts" >"$CASTOFF_ATTEMPT_DIR/hostfile"
  castoff_command=(env "SLURM_HOSTFILE=$CASTOFF_ATTEMPT_DIR/hostfile" "${castoff_command[@]}")
  unset -v SLURM_NTASKS_PER_NODE # srun would warn that it cannot keep to both
}
readonly -f castoff_name_hosts castoff_place_ranks
