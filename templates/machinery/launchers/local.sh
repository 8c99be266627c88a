# --- Start of the ranks by castoff launch, which sets RANK etc. and shows their output ----------------
castoff_start() { # LAUNCHER... -- PROGRAM...
#if teardown
  castoff_set_up=1
#endif
  castoff_command=() castoff_round=()
  while [[ $1 != -- ]]; do
    castoff_command+=("$1")
    shift
  done
  shift
#if loader !torchrun !container
  castoff_command+=(--given "$castoff_loading") # only names: no command line may show their values
#endif
#if restart
  castoff_command+=(--agent-for "$$") # preload: the importing process outlives this attempt
#endif
  castoff_check_run_dir
#if attempts
  castoff_check_fence # another attempt may have begun during setup
#endif
#if torchrun
  castoff_write_torchrun_rank
#endif
#if container
  castoff_round=("${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/container.sh")
#elif activate
  # A shell expands it before the program; env would take a name with = for a variable.
  # shellcheck disable=SC2016
  castoff_round=(sh -c 'PATH=$1 && shift && exec "$@"' sh "$castoff_staged_path$PATH")
#endif
  printf '%(%s)T\n' -1 >"$CASTOFF_ATTEMPT_DIR/launched" || true # end of setup
#if judged
  echo "$PWD" >"$CASTOFF_ATTEMPT_DIR/folder" || true # where checkpoints are searched
#if guessed
  castoff_note_others
#endif
#endif
  ( # bash makes background commands ignore INT and QUIT, which the ranks would inherit
    trap - INT QUIT
    exec "${castoff_command[@]}" --job-id "$castoff_job.$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT" \
      --log-dir "$CASTOFF_LOG_DIR" --failure-file "$CASTOFF_FAILURE_FILE" -- \
      ${castoff_round[@]+"${castoff_round[@]}"} "$@"
  ) &
  castoff_launcher=$!
#if use
  castoff_record_use
#endif
#if hang
  castoff_watch_hang
#endif
#ifdef castoff_scheduler_enforce_walltime
  castoff_scheduler_enforce_walltime
#endif
  castoff_wait
#if hang
  castoff_end_hang_watch
#endif
#ifdef castoff_scheduler_enforce_walltime
  builtin kill -s KILL "$castoff_enforcer" 2>/dev/null || true
#endif
}
#if use
#include use
#endif
