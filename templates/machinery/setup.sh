# --- Setup ----------------------------------------------------------------------------------------
castoff_in_setup='' castoff_returned='' castoff_failed='' castoff_failed_in=() castoff_failed_at=()
castoff_setup() { # up to castoff_setup_over, the line that ends the job is reported
  castoff_in_setup=1
  trap 'castoff_returned="$? $BASH_COMMAND"' RETURN
  # bash looks at -e once this trap is over, so what it sets here lasts until the next command begins.
  trap 'castoff_fails $? "$BASH_COMMAND" || { set +e; trap "set -e; trap - DEBUG" DEBUG; }' ERR
  set -ET +u # module files and activate scripts read variables that are not set
}
castoff_fails() { # CODE COMMAND: whether that ends the job
  # To -e a false test before && is no failure, unless its code becomes that of the file or function it ends.
  local castoff_tests='^(\.|source|\[|\[\[|test)[[:space:]]|^\(\('
  if [[ $BASHPID != "$$" || $- != *e* ]]; then return 0; fi # this one does not end the job
  if [[ "$1 $2" == "$castoff_returned" && $2 =~ $castoff_tests ]]; then return 1; fi
  castoff_keep_exit
  castoff_failed=$2 castoff_failed_in=("${BASH_SOURCE[@]:1}") castoff_failed_at=("${BASH_LINENO[@]}")
}
castoff_setup_over() {
  castoff_unset_user_functions
  trap - DEBUG ERR RETURN
  set +ET -euo pipefail
  castoff_in_setup=
}
castoff_report_setup() { # CODE COMMAND, as this script ends: which line of setup ended it
  local castoff_last castoff_line=
  if [[ -z $castoff_in_setup || $castoff_ending != failed ]]; then return; fi
  if [[ -z $castoff_failed ]]; then # it left by itself, and bash does not tell from which line of a file
    castoff_failed=$2 castoff_failed_in=("${BASH_SOURCE[@]:2}") castoff_failed_at=(0 "${BASH_LINENO[@]:2}")
  fi
  castoff_last=$((${#castoff_failed_in[@]} - 1))
  if ((castoff_failed_at[castoff_last])); then
    castoff_line=$(sed -n "${castoff_failed_at[castoff_last]}p" <"$0")
  fi
  castoff_line=${castoff_line:-$castoff_failed}
  castoff_line=${castoff_line#"${castoff_line%%[![:space:]]*}"} # as it is set in
  castoff_reason="setup ended the job with code $1, at this line: ${castoff_line:0:200}"
  if ((castoff_last && castoff_failed_at[0])); then
    castoff_reason+=" (${castoff_failed_in[0]}, line ${castoff_failed_at[0]}: $castoff_failed)"
  fi
  echo "castoff: $castoff_reason" >&2
}
readonly -f castoff_setup castoff_fails castoff_setup_over castoff_report_setup
