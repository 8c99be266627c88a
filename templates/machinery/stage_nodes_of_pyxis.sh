castoff_place_stage() { castoff_name_hosts stage-hosts 1 "$castoff_nodes"; }
castoff_choose_cleaner() { # CODE of the launcher. Slurm starts nothing more in a job that is being ended
  if [[ -n $castoff_terminated ]]; then castoff_cleaner=("${castoff_check_run_dir[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh"); fi
}
readonly -f castoff_place_stage castoff_choose_cleaner
