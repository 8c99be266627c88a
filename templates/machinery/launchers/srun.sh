# --- srun -----------------------------------------------------------------------------------------
castoff_launcher_name=srun castoff_end_node='exit 1'
castoff_name_hosts() { :; } # it knows them
castoff_place_ranks() { unset -v SLURM_HOSTFILE SLURM_DISTRIBUTION; } # or srun would follow them
readonly -f castoff_name_hosts castoff_place_ranks
