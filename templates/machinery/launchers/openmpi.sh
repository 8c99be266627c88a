#if node
castoff_process=${OMPI_COMM_WORLD_RANK:?castoff: Open MPI did not say which rank this is}
castoff_local=${OMPI_COMM_WORLD_LOCAL_RANK:?castoff: Open MPI did not say which local rank this is}
castoff_started=${OMPI_COMM_WORLD_SIZE:?castoff: Open MPI did not say how many ranks there are}
castoff_beside_it=${OMPI_COMM_WORLD_LOCAL_SIZE:-}
#else
# --- Open MPI's mpiexec ---------------------------------------------------------------------------
castoff_launcher_name=openmpi
castoff_launcher_name_hosts() { # FILE PROCESSES NODES: on the first NODES hosts PROCESSES each, on others one fewer
  awk -v most="$2" -v full="$3" '{ print $0 " slots=" most - (NR > full) }' "$CASTOFF_ATTEMPT_DIR/hosts" \
    >"$CASTOFF_ATTEMPT_DIR/$1"
  castoff_flags=(--hostfile "$CASTOFF_ATTEMPT_DIR/$1" -x PATH)
}
#if hosts
castoff_launcher_each() { # FILE COUNT of hosts: set the flags for one process on each
  castoff_flags=(--hostfile "$1")
  castoff_launcher_export
  castoff_flags+=(--map-by ppr:1:node -n "$2")
}
#endif
#if !torchrun !driver groups
castoff_launcher_place() {
  castoff_launcher_name_hosts hostfile 1 "$castoff_nodes" # then set each host's number from its group
  awk -v groups="$castoff_groups" '{
    while (NR > nodes) { split(groups, all); split(all[++group], one, "x"); nodes += one[1] }
    print $0 " slots=" one[2]
  }' "$CASTOFF_ATTEMPT_DIR/hosts" >"$CASTOFF_ATTEMPT_DIR/hostfile"
}
#elif !torchrun !driver
castoff_launcher_place() { castoff_launcher_name_hosts hostfile "$castoff_ranks_per_node" "$castoff_full_nodes"; }
#endif
#if !driver
castoff_launcher_export() { # Open MPI passes only named variables to other hosts
  local castoff_name
  castoff_flags=("${castoff_flags[@]:0:2}")
  while read -r castoff_name; do
    case $castoff_name in
      OMPI_* | PMIX_* | PRTE_* | SHLVL | _) ;;
      *) castoff_flags+=(-x "$castoff_name") ;;
    esac
  done < <(compgen -e)
}
#endif
#if nodes !driver
castoff_launcher_advise() {
  echo "castoff: an mpiexec that is not built for this scheduler reaches other hosts by ssh," \
    "and waits for one that does not answer" >&2
  if [[ -z ${PBS_JOBID:-} ]]; then return; fi
  echo "castoff: where ssh is closed between nodes, name a wrapper round pbs_tmrsh in the job's env:" \
    "OMPI_MCA_plm_rsh_agent=WRAPPER (docs/how-to/pbs.md has one)" >&2
}
#endif
#endif
