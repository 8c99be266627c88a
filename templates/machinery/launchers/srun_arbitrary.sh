# --- srun, with the job's own host file ---------------------------------------------------
castoff_launcher_name=srun castoff_end_node='exit 1'
castoff_name_hosts() { :; } # it knows them
castoff_place_ranks() { unset -v SLURM_NTASKS_PER_NODE; } # they go where --distribution says
castoff_host_of_rank_0() { # the arbitrary distribution starts it on the file's first line, of HOST or HOSTS*COUNT
  local castoff_line castoff_file=${SLURM_HOSTFILE:-$CASTOFF_ATTEMPT_DIR/hosts}
  castoff_line=$(awk '!/^[ \t]*(#|$)/ { sub(/\*.*/, ""); print $1; exit }' "$castoff_file")
  castoff_line=$(scontrol show hostnames "$castoff_line")
  echo "${castoff_line%%$'\n'*}"
}
readonly -f castoff_name_hosts castoff_place_ranks castoff_host_of_rank_0
