#if node
castoff_process=${SLURM_PROCID:?castoff: srun did not say which rank this is}
castoff_local=${SLURM_LOCALID:?castoff: srun did not say which local rank this is}
NODE_RANK=${SLURM_NODEID:?castoff: srun did not say which node this is}
castoff_started=${SLURM_STEP_NUM_TASKS:?castoff: this is not a step of srun}
castoff_node=${SLURMD_NODENAME:-} # Slurm's name of this host
#else
# --- srun -----------------------------------------------------------------------------------------
castoff_launcher_name=srun
#if hosts
castoff_launcher_each() { # FILE COUNT of hosts: set the flags for one process on each
  castoff_flags=("--nodes=$2" "--ntasks=$2" "--nodelist=$1")
  unset -v SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE # srun refuses --mem with any of them
}
#endif
#if restart
castoff_launcher_beside() { # while a host is unreachable, Slurm counts the previous step's resources on it as used
  if [[ -z $castoff_restarts_done ]]; then return 0; fi
  castoff_command+=(--overlap --mem=0)
  unset -v SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE # srun refuses --mem with any of them
}
#endif
#if attempts nodes !hosts !together
castoff_launcher_has_ended() { # whether Slurm has no more steps of this job, and has lost none of its nodes
  local castoff_steps castoff_last=$((SECONDS + 5)) # the last step may still be ending
  while castoff_steps=$(timeout -k 2 10 squeue --noheader --steps --job "$castoff_member" --format %i 2>/dev/null); do
    if [[ ! $castoff_steps =~ \.[0-9] ]] || ((SECONDS >= castoff_last)); then break; fi
    read -r -t 0.5 -u 9 _ 9<> <(:) || true
  done
  # The answer counts only if it lists the script's step. A lost node has no step, and changes the job's state.
  [[ $castoff_steps == *.batch* && ! $castoff_steps =~ \.[0-9] &&
    $(timeout -k 2 10 squeue --noheader --job "$castoff_member" --format %T 2>/dev/null) == RUNNING ]]
}
#endif
#if torchrun | driver
#elif together
castoff_refused=0
castoff_launcher_tries_again() { # after a failure: whether srun started no rank, as slurmctld or slurmd was away
  local castoff_why
  if ((castoff_code == 0)); then return 1; fi
  castoff_why=$(tail -n 20 "$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>/dev/null |
    sed -n -e '/^castoff: /h; /^srun: error: \(Unable to \(confirm allocation\|create step\)\|Task launch\) /h' \
      -e '${ g; p; }')
  case $castoff_why in
    "castoff: "*) return 1 ;; # srun's failure before the last one
    *"slurm controller"* | *"timed out"* | *"Zero Bytes"* | *onnection* | *"credential expired") ;;
    *"Memory required by task is not available") # so says a slurmctld that has just begun (22.05.8)
      if ((++castoff_refused > 20)); then return 1; fi
      ;;
    *) return 1 ;;
  esac
  if [[ $castoff_why == *"Task launch"* ]]; then # on another host, it may have succeeded
#if nodes
    if [[ ! -e $CASTOFF_ATTEMPT_DIR/starting || -n $(castoff_started) ]]; then return 1; fi
#else
    return 1
#endif
  fi
  echo "castoff: srun is started again, as it started nothing: ${castoff_why#*error: }" >&2
  read -r -t 1 -u 9 _ 9<> <(:) || true # unlike sleep, runs traps
  [[ -z $castoff_terminated && $(cat "$CASTOFF_ATTEMPT_DIR/fence") == live ]]
}
castoff_launcher_place() {
  unset -v SLURM_HOSTFILE SLURM_DISTRIBUTION "${!SLURM_NTASKS@}" SLURM_NPROCS SLURM_NNODES SLURM_JOB_NUM_NODES \
    "${!SLURM_MEM_PER_@}" "${!SLURM_CPUS_PER_@}" "${!SLURM_GPUS@}" SLURM_TRES_PER_TASK # they are the whole job's
#if uneven
  awk -v most="$castoff_ranks_per_node" -v full="$castoff_full_nodes" \
    '{ for (i = NR > full; i < most; i++) print }' "$CASTOFF_ATTEMPT_DIR/hosts" >"$CASTOFF_ATTEMPT_DIR/hostfile"
  castoff_command=(env "SLURM_HOSTFILE=$CASTOFF_ATTEMPT_DIR/hostfile" "${castoff_command[@]}")
#else
  castoff_flags=(--nodelist="$CASTOFF_ATTEMPT_DIR/hosts")
#endif
}
#elif arbitrary
castoff_launcher_place() { unset -v SLURM_NTASKS_PER_NODE SLURM_NNODES SLURM_JOB_NUM_NODES; } # the host file decides
#elif distribution
castoff_launcher_place() { unset -v SLURM_NTASKS_PER_NODE; } # --distribution decides
#elif uneven
castoff_launcher_place() {
  awk -v most="$castoff_ranks_per_node" -v full="$castoff_full_nodes" \
    '{ for (i = NR > full; i < most; i++) print }' "$CASTOFF_ATTEMPT_DIR/hosts" >"$CASTOFF_ATTEMPT_DIR/hostfile"
  castoff_command=(env "SLURM_HOSTFILE=$CASTOFF_ATTEMPT_DIR/hostfile" "${castoff_command[@]}")
  unset -v SLURM_NTASKS_PER_NODE SLURM_NNODES SLURM_JOB_NUM_NODES # they contradict the host file
}
#elif spares
castoff_launcher_place() {
  unset -v SLURM_HOSTFILE SLURM_DISTRIBUTION # or srun would follow them
  castoff_flags=(--nodelist="$CASTOFF_ATTEMPT_DIR/hosts")
}
#else
castoff_launcher_place() { unset -v SLURM_HOSTFILE SLURM_DISTRIBUTION; } # or srun would follow them
#endif
#if arbitrary
castoff_launcher_host_of_rank_0() { # with --distribution=arbitrary, the host file's first line: HOST or HOSTS*COUNT
  local castoff_line castoff_file=${SLURM_HOSTFILE:-$CASTOFF_ATTEMPT_DIR/hosts}
  castoff_line=$(awk '!/^[ \t]*(#|$)/ { sub(/\*.*/, ""); print $1; exit }' "$castoff_file")
  castoff_line=$(scontrol show hostnames "$castoff_line")
  echo "${castoff_line%%$'\n'*}"
}
#endif
#if nodes !driver
castoff_launcher_advise() {
  echo "castoff: srun waits for CPUs that another step of this job holds" \
    "(squeue --steps --job ${SLURM_JOB_ID:-}), for a container's image," \
    "for a node that does not answer (scontrol show node NODE), or for what launcher.args ask and no node has" >&2
}
#endif
#endif
