castoff_enter_container() { castoff_round=("${castoff_check_run_dir[@]}" "$CASTOFF_ATTEMPT_DIR/container.sh"); }
castoff_at_start+=(castoff_enter_container)
readonly -f castoff_enter_container
