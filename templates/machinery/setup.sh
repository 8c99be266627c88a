#if setup
# --- Setup ----------------------------------------------------------------------------------------
castoff_in_setup='' castoff_reason='' castoff_returned='' castoff_failed='' castoff_failed_in=() castoff_failed_at=()
castoff_setup() { # until castoff_setup_over, a line that ends the job is reported
  castoff_in_setup=1
  trap 'castoff_returned="$? $BASH_COMMAND"' RETURN
  # bash checks -e after this trap, so the trap's set -e or +e lasts until the next command.
  trap 'castoff_fails $? "$BASH_COMMAND" || { set +e; trap "set -e; trap - DEBUG" DEBUG; }' ERR
  set -ET +u # +u: module files and activate scripts read unset variables
}
castoff_fails() { # CODE COMMAND: whether the failure ends the job
  # For -e a false test before && is not a failure, unless it is the last command of its file or function.
  local castoff_tests='^(\.|source|\[|\[\[|test)[[:space:]]|^\(\('
  if [[ $BASHPID != "$$" || $- != *e* ]]; then return 0; fi # a subshell, or -e is off
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
castoff_report_setup() { # CODE COMMAND, as this script exits: report the line of setup that ended it
  local castoff_last castoff_line=
  if [[ -z $castoff_in_setup || $castoff_ending != failed ]]; then return; fi
  if [[ -z $castoff_failed ]]; then # it called exit, and bash does not report the line of a sourced file
    castoff_failed=$2 castoff_failed_in=("${BASH_SOURCE[@]:2}") castoff_failed_at=(0 "${BASH_LINENO[@]:2}")
  fi
  castoff_last=$((${#castoff_failed_in[@]} - 1))
  if ((castoff_failed_at[castoff_last])); then
    castoff_line=$(sed -n "${castoff_failed_at[castoff_last]}p" <"$0")
  fi
  castoff_line=${castoff_line:-$castoff_failed}
  castoff_line=${castoff_line#"${castoff_line%%[![:space:]]*}"} # without indentation
  castoff_reason="setup ended the job with code $1, at this line: ${castoff_line:0:200}"
  if ((castoff_last && castoff_failed_at[0])); then
    castoff_reason+=" (${castoff_failed_in[0]}, line ${castoff_failed_at[0]}: $castoff_failed)"
  fi
  echo "castoff: $castoff_reason" >&2
}
castoff_keep_exit() { # run an EXIT trap of setup's after castoff's, instead of replacing it
  local castoff_theirs
  castoff_theirs=$(trap -p EXIT)
  if [[ $castoff_theirs == *'castoff_finish $?'* ]]; then return 0; fi
  builtin eval "castoff_theirs=(${castoff_theirs#trap -- })" # (command EXIT)
  trap 'castoff_finish $? "$BASH_COMMAND"'$'\n'"${castoff_theirs[0]-}" EXIT
}
#endif
#if setup | teardown | restart | hang | preflight | notify | requeue | copy | chain | rerun
castoff_json() { # TEXT escaped for a JSON string, truncated to fit
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
  export CASTOFF_CODE_DIR=$CASTOFF_RUN_DIR/code.workdir # the working directory in the copy of the code
  if [[ ! -e $CASTOFF_RUN_DIR/code.json ]]; then # castoff submit writes it
    echo "castoff: no snapshot was taken for this script: the ranks run the code in $PWD as it is now" >&2
    CASTOFF_CODE_DIR=$castoff_submit_dir
  fi
}
#endif
