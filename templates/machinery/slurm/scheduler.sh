# --- What Slurm tells a job -----------------------------------------------------------------------
castoff_to_give="submit with sbatch --export=NAME"
castoff_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
castoff_about_start() { # what start.json holds
  printf '{"job": "%s", "cluster": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "${SLURM_CLUSTER_NAME:-}" \
    "$(hostname)" "$(date +%s)"
}
castoff_clear_other_schedulers() { unset -v "${!PBS_@}"; } # the launcher would believe them
# sbatch hands on the variables of the step that it runs in, whatever --export says, and srun obeys them: all ranks
# would be bound to the CPUs of that step (seen on 22.05.8). What a directive of this script set is this job's own.
castoff_clear_outer_step() {
  local castoff_name castoff_option
  for castoff_name in "${!SLURM_@}" "${!SRUN_@}"; do
    castoff_option=${castoff_name#S*_}
    case $castoff_option in
      *_BIND | *_BIND_*) castoff_option=${castoff_option%%_BIND*}_BIND ;;
      DIST*) castoff_option=DISTRIBUTION ;;
      HINT | CPUS_PER_TASK | CPUS_PER_GPU | GPUS_PER_TASK | THREADS_PER_CORE) ;;
      *) continue ;;
    esac
    castoff_option=${castoff_option//_/-}
    grep -q "^#SBATCH --${castoff_option,,}\b" "$0" || unset -v "$castoff_name"
  done
  unset -v SLURM_EXPORT_ENV # of sbatch --export: each srun and sbatch in here would begin with an empty environment
}
castoff_at_attempt+=(castoff_clear_outer_step)
readonly -f castoff_hosts castoff_about_start castoff_clear_other_schedulers castoff_clear_outer_step
