# --- Parameters of the array's members ------------------------------------------------------------
castoff_parameters() { # NAME...; standard input: rows of values in JSON, but True and False as spelled
  local castoff_row castoff_name castoff_value castoff_values castoff_json castoff_number=0
  castoff_row=$(sed -n "$((CASTOFF_ARRAY_INDEX + 1)){p;q;}")
  if [[ -z $castoff_row ]]; then
    echo "castoff: this array has no member $CASTOFF_ARRAY_INDEX" >&2
    exit 1
  fi
  IFS=$'\t' read -r -a castoff_values <<<"$castoff_row"
  declare -gA castoff_parameter=()
  castoff_parameters_json=''
  for castoff_name; do
    castoff_value=${castoff_values[castoff_number++]}
    castoff_json=$castoff_value
    [[ $castoff_value != [TF]* ]] || castoff_json=${castoff_value,,}
    castoff_parameters_json+="${castoff_parameters_json:+, }\"$castoff_name\": $castoff_json"
    if [[ $castoff_value == '"'* ]]; then
      castoff_value=${castoff_value:1:-1}
      castoff_value=${castoff_value//$'\\\\'/$'\e'} # first, as it ends where another escape may begin
      castoff_value=${castoff_value//$'\\"'/$'"'}
      castoff_value=${castoff_value//$'\\t'/$'\t'}
      castoff_value=${castoff_value//$'\e'/$'\\'}
    fi
    castoff_parameter[$castoff_name]=$castoff_value
  done
  castoff_write_parameters
}
castoff_write_parameters() { # for programs that read them all
  export CASTOFF_PARAMETERS=$CASTOFF_ATTEMPT_DIR/parameters.json
  (umask 077 && printf '%s\n' "{$castoff_parameters_json}" >"$CASTOFF_PARAMETERS")
}
