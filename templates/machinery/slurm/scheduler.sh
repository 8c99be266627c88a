# --- What Slurm tells a job -----------------------------------------------------------------------
castoff_to_give="submit with sbatch --export=NAME"
castoff_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
castoff_about_start() { # what start.json holds
  printf '{"job": "%s", "cluster": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "${SLURM_CLUSTER_NAME:-}" \
    "$(hostname)" "$(date +%s)"
}
castoff_forget_other_schedulers() { unset -v "${!PBS_@}"; } # the starter would believe them
readonly -f castoff_hosts castoff_about_start castoff_forget_other_schedulers
