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
# qsub -v hands on no ' and no ": a path that holds one begins with %, and holds %27 and %22 in their place.
castoff_read_run_dir() {
  if [[ ${CASTOFF_RUN_DIR:-} != %* ]]; then return 0; fi
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR#%}
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR//[%]27/"'"}
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR//[%]22/'"'}
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR//[%]25/"%"}
}
castoff_run_dir_for_qsub() {
  local castoff_path=$CASTOFF_RUN_DIR
  if [[ $castoff_path == *[\'\"]* ]]; then
    castoff_path=${castoff_path//[%]/"%25"}
    castoff_path=${castoff_path//"'"/"%27"}
    castoff_path=%${castoff_path//'"'/"%22"}
  fi
  printf %s "$castoff_path"
}
castoff_clear_other_schedulers() { unset -v "${!SLURM_@}"; } # the launcher would believe them
readonly -f castoff_hosts castoff_about_start castoff_read_run_dir castoff_run_dir_for_qsub
readonly -f castoff_clear_other_schedulers
