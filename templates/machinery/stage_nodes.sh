castoff_place_stage() { castoff_name_hosts stage-hosts 1 "$castoff_nodes"; }
castoff_choose_cleaner() { # CODE of the launcher
  # The last rank of a node has cleaned it. Slurm starts nothing more in a job that is being ended.
  if [[ -n $castoff_terminated ]] || (($1 == 0)); then
    castoff_cleaner=("${castoff_check_run_dir[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh")
  fi
}
readonly -f castoff_place_stage castoff_choose_cleaner
