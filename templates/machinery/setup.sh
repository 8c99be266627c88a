#if setup
# --- Setup ----------------------------------------------------------------------------------------
castoff_in_setup='' castoff_reason='' castoff_returned='' castoff_failed='' castoff_failed_in=() castoff_failed_at=()
castoff_setup() { # up to castoff_setup_over, the line that ends the job is reported
  castoff_in_setup=1
  trap 'castoff_returned="$? $BASH_COMMAND"' RETURN
  # bash looks at -e once this trap is over, so what it sets here lasts until the next command begins.
  trap 'castoff_fails $? "$BASH_COMMAND" || { set +e; trap "set -e; trap - DEBUG" DEBUG; }' ERR
  set -ET +u # module files and activate scripts read variables that are not set
}
castoff_fails() { # CODE COMMAND: whether that ends the job
  # To -e a false test before && is not a failure, unless its code becomes that of the file or function it ends.
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
castoff_keep_exit() { # a trap of setup's for the end comes after ours, rather than in its place
  local castoff_theirs
  castoff_theirs=$(trap -p EXIT)
  if [[ $castoff_theirs == *'castoff_finish $?'* ]]; then return 0; fi
  builtin eval "castoff_theirs=(${castoff_theirs#trap -- })" # the command, and EXIT
  trap 'castoff_finish $? "$BASH_COMMAND"'$'\n'"${castoff_theirs[0]-}" EXIT
}
#endif
#if setup | teardown | restart | hang | preflight | requeue | copy | chain | rerun
castoff_json() { # TEXT within the quotes of a JSON string, as far as there is room
  local LC_ALL=C castoff_text
  castoff_text=${1:0:400}
  castoff_text=${castoff_text//[[:cntrl:]]/ }
  castoff_text=${castoff_text//\\/\\\\}
  printf %s "${castoff_text//\"/\\\"}"
}
#endif
#if snapshot
castoff_snapshot() {
  export CASTOFF_SUBMIT_DIR=$castoff_submit_dir
  export CASTOFF_CODE_DIR=$CASTOFF_RUN_DIR/code.workdir # the same folder in the copy of the code
  if [[ ! -e $CASTOFF_RUN_DIR/code.json ]]; then # castoff submit writes it
    echo "castoff: no snapshot was taken for this script: the ranks run the code in $PWD as it is now" >&2
    CASTOFF_CODE_DIR=$castoff_submit_dir
  fi
}
#endif
