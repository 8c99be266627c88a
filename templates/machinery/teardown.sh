# --- Teardown: on this host, once the ranks have ended --------------------------------------------
castoff_set_up='' # set once setup was through, and this script is in the ranks' folder with their variables
castoff_tearing_down='' castoff_recorder='' castoff_reason='' castoff_last_names=() castoff_last_lines=()
castoff_at_end() { # NAME; standard input: shell lines
  castoff_last_names+=("$1") castoff_last_lines+=("$(cat)")
}
castoff_tear_down() { # ENDING CODE, which are on record afterwards; sooner where somebody ends this job
  local castoff_code castoff_launcher castoff_place castoff_name castoff_lines=("${castoff_last_lines[@]}")
  castoff_last_lines=() # once
  if ((!${#castoff_lines[@]})); then return 0; fi
  if [[ $1 == failed && $2 == 143 ]]; then # what cancels the job may reach its ranks first
    for _ in {1..20}; do
      if [[ -n $castoff_terminated ]]; then break; fi
      read -r -t 0.1 -u 9 _ || true
    done 9<> <(:)
    if [[ -n $castoff_terminated && -n ${castoff_late-} ]]; then set -- walltime 143; fi
    if [[ -n $castoff_terminated && $1 == failed ]]; then set -- cancelled 143; fi
  fi
  export CASTOFF_OUTCOME=$1 CASTOFF_EXIT_CODE=$2
  if [[ $1 == failed && $2 == 0 ]]; then CASTOFF_EXIT_CODE=1; fi # a setup line that exits with 0
  castoff_tearing_down=1
  if [[ -n $castoff_terminated ]]; then castoff_record_soon; fi
  for castoff_place in "${!castoff_lines[@]}"; do
    castoff_name=${castoff_last_names[castoff_place]}
    if [[ -z $castoff_set_up && $castoff_name == teardown ]]; then # it might remove what its variables do not name
      echo "castoff: teardown is not run, because setup was not through" >&2
      continue
    fi
    (
      trap - DEBUG ERR INT QUIT RETURN
      set +eEuT +o pipefail # each line is run, whatever became of those before
#if loader here !torchrun !container
      IFS=, read -r -a castoff_given <<<"$castoff_loading"
      for castoff_given in ${castoff_given[@]+"${castoff_given[@]/#/CASTOFF_GIVEN_}"}; do
        export "${castoff_given#CASTOFF_GIVEN_}=${!castoff_given}"
      done
#elif loader
      eval "$castoff_loading" # what ranks alone had before
#endif
      trap 'castoff_report_teardown $? "$BASH_COMMAND"' ERR
      eval "${castoff_lines[castoff_place]}"$'\n:'
    ) &
    castoff_launcher=$!
    castoff_wait
    if ((castoff_code)); then castoff_report_teardown "$castoff_code"; fi
  done
  castoff_tearing_down=
  builtin kill -s KILL "$castoff_recorder" 2>/dev/null || true
  if [[ -s $CASTOFF_ATTEMPT_DIR/teardown ]]; then # after why setup has failed, if it has
    castoff_reason+=${castoff_reason:+; }$(head -n 1 "$CASTOFF_ATTEMPT_DIR/teardown")
  fi
}
castoff_record_soon() { # while teardown runs; the scheduler, too, says of a job that it killed that this was so
  local castoff_delay=0.01
  if [[ $CASTOFF_OUTCOME =~ ^(cancelled|walltime)$ ]]; then castoff_delay=3; fi # castoff wait may still return after it
  (
    read -r -t "$castoff_delay" _ <> <(:) || true
    castoff_record_torn
  ) &
  castoff_recorder=$!
  disown "$castoff_recorder" # or bash would tell of its end
}
castoff_record_torn() { # what holds unless teardown gets to its end before it is killed; then another record follows
  local castoff_reason=${castoff_reason:+$castoff_reason; }"teardown was still running when the job was ended"
  castoff_record_ending "$CASTOFF_OUTCOME" "$CASTOFF_EXIT_CODE"
}
castoff_report_teardown() { # CODE [COMMAND]: what did not work; the job's own ending stays as it is
  local castoff_text="$castoff_name ended with code $1"
  if [[ -n $castoff_terminated ]]; then castoff_text="$castoff_name was ended with the job"; fi
  if [[ -n ${2-} ]]; then castoff_text="$castoff_name: this failed with code $1: ${2:0:200}"; fi
  echo "castoff: $castoff_text" >&2
  printf '%s\n' "${castoff_text//$'\n'/ }" >>"$CASTOFF_ATTEMPT_DIR/teardown"
}
