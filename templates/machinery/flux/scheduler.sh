# --- What Flux tells a job ------------------------------------------------------------------------
castoff_to_give="submit with flux batch --env=NAME"
castoff_hosts() { command flux hostlist --expand --delimiter=$'\n' local; }
castoff_about_start() { # what start.json holds
  printf '{"job": "%s", "cluster": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "$castoff_instance" \
    "$(hostname)" "$(date +%s)"
}
castoff_clear_other_schedulers() { unset -v "${!SLURM_@}" "${!PBS_@}"; } # the launcher would believe them
# At the walltime Flux sends ALRM, with HUP; KILL follows both of them within seconds.
castoff_hear_alarm() { trap castoff_terminate ALRM; }
castoff_at_start+=(castoff_hear_alarm)
readonly -f castoff_hosts castoff_about_start castoff_clear_other_schedulers castoff_hear_alarm
