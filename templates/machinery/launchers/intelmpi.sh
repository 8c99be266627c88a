#if node
castoff_process=${PMI_RANK:?castoff: mpiexec did not say which rank this is}
castoff_local=${MPI_LOCALRANKID:?castoff: mpiexec did not say which local rank this is}
castoff_started=${PMI_SIZE:?castoff: mpiexec did not say how many ranks there are}
castoff_beside_it=${MPI_LOCALNRANKS:-}
#else
# --- Intel MPI's mpiexec, a Hydra ---------------------------------------------------------------------
castoff_launcher_name=intelmpi
castoff_launcher_name_hosts() { # FILE PROCESSES NODES: on the first NODES hosts PROCESSES each, on others one fewer
  awk -v most="$2" -v full="$3" '{ print $0 ":" most - (NR > full) }' "$CASTOFF_ATTEMPT_DIR/hosts" \
    >"$CASTOFF_ATTEMPT_DIR/$1"
  castoff_flags=(-machinefile "$CASTOFF_ATTEMPT_DIR/$1")
}
#if hosts
castoff_launcher_each() { # FILE COUNT of hosts: set the flags for one process on each
  castoff_flags=(-f "$1" -ppn 1 -n "$2")
}
#endif
#if !torchrun !driver groups
castoff_launcher_place() {
  castoff_launcher_name_hosts hostfile 1 "$castoff_nodes" # then set each host's number from its group
  awk -v groups="$castoff_groups" '{
    while (NR > nodes) { split(groups, all); split(all[++group], one, "x"); nodes += one[1] }
    print $0 ":" one[2]
  }' "$CASTOFF_ATTEMPT_DIR/hosts" >"$CASTOFF_ATTEMPT_DIR/hostfile"
}
#elif !torchrun !driver
castoff_launcher_place() { castoff_launcher_name_hosts hostfile "$castoff_ranks_per_node" "$castoff_full_nodes"; }
#endif
#if nodes !driver
castoff_launcher_advise() {
  if [[ -n ${SLURM_JOB_ID:-} ]]; then
    echo "castoff: in a job of Slurm's mpiexec reaches other hosts by srun:" \
      "squeue --steps --job $SLURM_JOB_ID shows what holds it up" >&2
    return
  fi
  echo "castoff: mpiexec reaches other hosts by ssh, and never returns where one does not answer." >&2
  if [[ -z ${PBS_JOBID:-} ]]; then return; fi
  echo "castoff: where ssh is closed between nodes, name a wrapper round pbs_tmrsh in the job's env:" \
    "I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC=WRAPPER (docs/how-to/pbs.md has one)" >&2
}
#endif
#endif
