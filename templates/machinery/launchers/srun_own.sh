# --- srun, with a distribution of the job's own ---------------------------------------------------
castoff_launcher_name=srun castoff_end_node='exit 1'
castoff_name_hosts() { :; } # it knows them
castoff_place_ranks() { unset -v SLURM_NTASKS_PER_NODE; } # they go where --distribution says
readonly -f castoff_name_hosts castoff_place_ranks
