# --- What PBS tells a job -------------------------------------------------------------------------
castoff_to_give="submit with qsub -v NAME"
castoff_hosts() { awk '!seen[$0]++' "$PBS_NODEFILE"; }
castoff_about_start() { # what start.json holds
  printf '{"job": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "$(hostname)" "$(date +%s)"
}
castoff_forget_other_schedulers() { unset -v "${!SLURM_@}"; } # the starter would believe them
readonly -f castoff_hosts castoff_about_start castoff_forget_other_schedulers
