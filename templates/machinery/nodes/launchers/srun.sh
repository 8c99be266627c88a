castoff_process=${SLURM_PROCID:?castoff: srun did not say which rank this is}
castoff_local=${SLURM_LOCALID:?castoff: srun did not say which local rank this is}
NODE_RANK=${SLURM_NODEID:?castoff: srun did not say which node this is}
castoff_started=${SLURM_STEP_NUM_TASKS:?castoff: this is no step of srun}
castoff_beside_it= # how many ranks are on this node: it does not say so in one number
castoff_end_others() { :; }
castoff_node=${SLURMD_NODENAME:-} # this host, as Slurm calls it
