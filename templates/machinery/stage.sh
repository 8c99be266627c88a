# --- Stage: copies on each node's own disk, made before the ranks start ---------------------------
castoff_staged=
castoff_items=
castoff_staged_path= # the folders that come first on PATH, each with a : behind it
castoff_stage_in() { # FOLDER
  local castoff_storage=$1
  if [[ ! -w $castoff_storage && -w $castoff_storage/$(id -un) ]]; then castoff_storage+=/$(id -un); fi
  export CASTOFF_STAGE_DIR=$castoff_storage/castoff-$castoff_job.$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
  castoff_folders+=("$CASTOFF_STAGE_DIR")
}
castoff_item() { # FROM TO unpack|copy activate|leave [SHA-256]
  castoff_items+="\"\$1\" $(castoff_quoted "$@")"$'\n'
  if [[ $4 == activate ]]; then castoff_staged_path+=$CASTOFF_STAGE_DIR/$2/bin:; fi
}
castoff_stage() { # LAUNCHER of one process a node...
  castoff_command=("$@") castoff_flags=()
  castoff_write_stage
  castoff_place_stage
  castoff_stage=("${castoff_command[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"}
    "${castoff_check_run_dir[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh")
  : >"$CASTOFF_LOG_DIR/stage.log"
  castoff_run "${castoff_check_run_dir[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh" measure >"$CASTOFF_ATTEMPT_DIR/stage-sizes"
  if ((castoff_code == 0)); then
    awk '{ bytes += $2 } END { printf "castoff: staging %.1f MiB to each node\n", bytes / 1048576 }' \
      "$CASTOFF_ATTEMPT_DIR/stage-sizes"
    castoff_staged=1
    castoff_run "${castoff_stage[@]}" copy >"$CASTOFF_LOG_DIR/stage.log" 2>&1
  fi
  castoff_launcher=
  if [[ -n $castoff_terminated ]]; then castoff_leave_stage; fi
  castoff_check_stage
  castoff_tell_of_stage
}
castoff_run() { # COMMAND... in the background, where signals reach it; leaves its code in castoff_code
  "$@" "$CASTOFF_STAGE_DIR" "$castoff_submit_dir" &
  castoff_launcher=$!
  castoff_wait
}
castoff_leave_stage() { # the job was ended meanwhile
  local castoff_count
  castoff_count=$(grep 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log" | grep -vc " on $(hostname)\$" || true)
  if ((castoff_count > 0)); then
    echo "castoff: $CASTOFF_STAGE_DIR may still be there on nodes that had it all already: $((castoff_count))" >&2
  fi
  castoff_ending=cancelled
  if [[ -n ${CASTOFF_DEADLINE:-} ]] && (($(date +%s) + 15 > CASTOFF_DEADLINE)); then castoff_ending=walltime; fi
  exit 143
}
castoff_check_stage() { # whether all nodes have it
  local castoff_count castoff_plural=s
  castoff_count=$(grep -c 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log" || true)
  if [[ -e $CASTOFF_FAILURE_FILE ]]; then # its code counts, and not the launcher's
    castoff_code=$(sed -n 's/.*"code": \([0-9]*\).*/\1/p' "$CASTOFF_FAILURE_FILE")
  fi
  if ((castoff_code != 0 || castoff_count != castoff_nodes)); then
    if ((castoff_nodes == 1)); then castoff_plural=; fi
    { grep -v 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log" || true; } | tail -n 40 >&2
    echo "castoff: staging failed: $((castoff_count)) of $castoff_nodes node$castoff_plural did it," \
      "and no rank was started; see $CASTOFF_LOG_DIR/stage.log" >&2
    exit $((castoff_code ? castoff_code : 1))
  fi
}
castoff_unstage() { # CODE, the launcher's; never for long, since somebody may be about to kill this job
  if [[ -z $castoff_staged ]]; then return 0; fi
  castoff_staged=
  # A signal now ends the cleaning; it is too late to be the ranks' ending.
  local castoff_code castoff_launcher=none castoff_terminated=$castoff_terminated
  local castoff_limit=60 castoff_cleaner=("${castoff_stage[@]}")
  if [[ -n $castoff_terminated ]]; then castoff_limit=4; fi
  castoff_choose_cleaner "$1"
  castoff_run timeout --kill-after=2 "$castoff_limit" "${castoff_cleaner[@]}" clean
  if ((castoff_code != 0)); then
    echo "castoff: $CASTOFF_STAGE_DIR may still be there on some node:" \
      "removing it failed or took over $castoff_limit s" >&2
  fi
}
castoff_unstage_at_end() { castoff_unstage "$castoff_code"; }
castoff_unstage_at_exit() { castoff_unstage 1; }
castoff_at_end+=(castoff_unstage_at_end)
castoff_at_exit+=(castoff_unstage_at_exit)
readonly -f castoff_stage_in castoff_item castoff_stage castoff_run castoff_leave_stage castoff_check_stage
readonly -f castoff_unstage castoff_unstage_at_end castoff_unstage_at_exit
