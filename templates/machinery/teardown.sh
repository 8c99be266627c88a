# --- Teardown: on this host, after the ranks have ended -------------------------------------------
castoff_set_up='' # set when setup has succeeded, and this script has the ranks' folder and variables
castoff_tearing_down='' castoff_recorder='' castoff_reason='' castoff_last_names=() castoff_last_lines=()
castoff_at_end() { # NAME; standard input: shell lines
  castoff_last_names+=("$1") castoff_last_lines+=("$(cat)")
}
castoff_tear_down() { # ENDING CODE: recorded afterwards, or earlier if the job is being ended
  local castoff_code castoff_launcher castoff_place castoff_name castoff_lines=("${castoff_last_lines[@]}")
  castoff_last_lines=() # run only once
  if ((!${#castoff_lines[@]})); then return 0; fi
  if [[ $1 == failed && $2 == 143 ]]; then # a cancellation may reach the ranks first
    for _ in {1..20}; do
      if [[ -n $castoff_terminated ]]; then break; fi
      read -r -t 0.1 -u 9 _ || true
    done 9<> <(:)
    if [[ -n $castoff_terminated && -n ${castoff_late-} ]]; then set -- walltime 143; fi
    if [[ -n $castoff_terminated && $1 == failed ]]; then set -- cancelled 143; fi
  fi
  export CASTOFF_OUTCOME=$1 CASTOFF_EXIT_CODE=$2
  if [[ $1 == failed && $2 == 0 ]]; then CASTOFF_EXIT_CODE=1; fi # setup called exit 0
  castoff_tearing_down=1
  if [[ -n $castoff_terminated ]]; then castoff_record_soon; fi
  for castoff_place in "${!castoff_lines[@]}"; do
    castoff_name=${castoff_last_names[castoff_place]}
    if [[ -z $castoff_set_up && $castoff_name == teardown ]]; then # unset variables might make it remove other files
      echo "castoff: teardown is not run, because setup was not through" >&2
      continue
    fi
    (
      trap - DEBUG ERR INT QUIT RETURN
      set +eEuT +o pipefail # run each line, even if earlier ones failed
#if loader here !torchrun !container
      IFS=, read -r -a castoff_given <<<"$castoff_loading"
      for castoff_given in ${castoff_given[@]+"${castoff_given[@]/#/CASTOFF_GIVEN_}"}; do
        export "${castoff_given#CASTOFF_GIVEN_}=${!castoff_given}"
      done
#elif loader
      eval "$castoff_loading" # variables that only ranks had before
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
  if [[ -s $CASTOFF_ATTEMPT_DIR/teardown ]]; then # after the report on setup, if that failed
    castoff_reason+=${castoff_reason:+; }$(head -n 1 "$CASTOFF_ATTEMPT_DIR/teardown")
  fi
}
castoff_record_soon() { # record the ending while teardown runs, in case the scheduler kills this script
  local castoff_delay=0.01
  if [[ $CASTOFF_OUTCOME =~ ^(cancelled|walltime)$ ]]; then castoff_delay=3; fi # castoff wait then follows teardown
  (
    read -r -t "$castoff_delay" _ <> <(:) || true
    castoff_record_torn
  ) &
  castoff_recorder=$!
  disown "$castoff_recorder" # or bash would report its end
}
castoff_record_torn() { # the record that holds if teardown is killed; otherwise a final one follows
  local castoff_reason=${castoff_reason:+$castoff_reason; }"teardown was still running when the job was ended"
  castoff_record_ending "$CASTOFF_OUTCOME" "$CASTOFF_EXIT_CODE"
}
castoff_report_teardown() { # CODE [COMMAND]: report a failed line; the job's ending stays the same
  local castoff_text="$castoff_name ended with code $1"
  if [[ -n $castoff_terminated ]]; then castoff_text="$castoff_name was ended with the job"; fi
  if [[ -n ${2-} ]]; then castoff_text="$castoff_name: this failed with code $1: ${2:0:200}"; fi
  echo "castoff: $castoff_text" >&2
  printf '%s\n' "${castoff_text//$'\n'/ }" >>"$CASTOFF_ATTEMPT_DIR/teardown"
}
