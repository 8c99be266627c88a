# --- Open MPI's mpiexec ---------------------------------------------------------------------------
castoff_launcher_name=openmpi castoff_end_node='exit 1'
castoff_name_hosts() { # FILE PROCESSES on each of the first NODES, one fewer on the others
  awk -v most="$2" -v full="$3" '{ print $0 " slots=" most - (NR > full) }' "$CASTOFF_ATTEMPT_DIR/hosts" \
    >"$CASTOFF_ATTEMPT_DIR/$1"
  castoff_flags=(--hostfile "$CASTOFF_ATTEMPT_DIR/$1" -x PATH)
}
castoff_place_ranks() { castoff_name_hosts hostfile "$castoff_ranks_per_node" "$castoff_full_nodes"; }
castoff_export_all() { # Open MPI hands other hosts no variable that is not named
  local castoff_name
  castoff_flags=("${castoff_flags[@]:0:2}")
  while read -r castoff_name; do
    case $castoff_name in
      OMPI_* | PMIX_* | PRTE_* | SHLVL | _) ;;
      *) castoff_flags+=(-x "$castoff_name") ;;
    esac
  done < <(compgen -e)
}
castoff_at_start+=(castoff_export_all)
readonly -f castoff_name_hosts castoff_place_ranks castoff_export_all
