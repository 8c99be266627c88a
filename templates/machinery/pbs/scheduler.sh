# --- What PBS tells a job -------------------------------------------------------------------------
castoff_to_give="submit with qsub -v NAME"
castoff_hosts() { # each once, by the name that comes first: n1 and n1.cluster are one host; addresses stay whole
  awk 'NF {
    address = $1 ~ /^[0-9.]+$|:/
    known = $1 in hosts || $1 in shorter
    for (name = $1; !address && sub(/\.[^.]*$/, "", name);) known = known || name in hosts
    if (known) next
    print $1
    hosts[$1]
    for (name = $1; !address && sub(/\.[^.]*$/, "", name);) shorter[name]
  }' "$PBS_NODEFILE"
}
castoff_about_start() { # what start.json holds
  printf '{"job": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "$(hostname)" "$(date +%s)"
}
castoff_forget_other_schedulers() { unset -v "${!SLURM_@}"; } # the starter would believe them
readonly -f castoff_hosts castoff_about_start castoff_forget_other_schedulers
