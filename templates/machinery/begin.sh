# --- Run directory: records and logs --------------------------------------------------------------
# What parts of this machinery do at these times; each adds to them.
castoff_at_attempt=(:) castoff_at_records=(:) castoff_at_begun=(:) castoff_beside=(:) castoff_at_over=(:)
castoff_at_end=(:) castoff_on_launcher_failure=(:) castoff_at_failure=(:) castoff_at_again=(:) castoff_at_success=(:)
castoff_at_start=(castoff_check_run_directory) castoff_at_exit=(:)
castoff_run_hooks() { # STEP...
  local castoff_step
  for castoff_step; do "$castoff_step"; done
}
castoff_begin() {
  castoff_unset_user_functions
  castoff_locate
  castoff_find_run_directory
  castoff_count_attempts
  castoff_run_hooks "${castoff_at_attempt[@]}"
  castoff_begin_records
  castoff_run_hooks "${castoff_at_records[@]}"
  if ((CASTOFF_ATTEMPT)); then echo "castoff: attempt $CASTOFF_ATTEMPT begins"; fi # one log may hold several
  castoff_ending=failed castoff_reason=
  castoff_listen # before a trap for the end, which would call what a signal ends failed
  trap 'castoff_finish $? "$BASH_COMMAND"' EXIT # which keeps the code
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # while it waited, somebody asked the run to stop
    echo "castoff: stopped before it began; castoff resubmit restarts it" >&2
    castoff_ending=cancelled
    exit 143
  fi
  castoff_run_hooks "${castoff_at_begun[@]}"
  castoff_set_deadline
  cd "$castoff_submit_dir" || exit
}
# castoff submit names it. A script that stands alone makes castoff-<job id> where it was submitted,
# and copies itself there; a directory that a parent job left in the environment is not believed.
castoff_find_run_directory() {
  if [[ -n ${CASTOFF_RUN_DIR:-} && ! -e $CASTOFF_RUN_DIR ]]; then
    echo "castoff: $(hostname) does not see $CASTOFF_RUN_DIR: a run directory must lie where all nodes see it;" \
      "castoff submit --runs-dir names another folder; should it be another job's, unset CASTOFF_RUN_DIR first" >&2
    exit 1
  fi
  if [[ -z ${CASTOFF_RUN_DIR:-} ]] || ! cmp -s -- "$0" "$CASTOFF_RUN_DIR/job.sh"; then
    CASTOFF_RUN_DIR=$castoff_submit_dir/castoff-$castoff_job
    unset -v CASTOFF_ATTEMPT CASTOFF_ARRAY_OFFSET CASTOFF_FIRST_ATTEMPT CASTOFF_CHAIN CASTOFF_FOLLOWS
    # shellcheck disable=SC2174 # its parent is there
    [[ -L $CASTOFF_RUN_DIR ]] || mkdir -p -m 700 -- "$CASTOFF_RUN_DIR"
  fi
  castoff_check_run_directory
  cmp -s -- "$0" "$CASTOFF_RUN_DIR/job.sh" || (
    umask 077
    echo '*' >"$CASTOFF_RUN_DIR/.gitignore" # git takes no run for code
    cp -- "$0" "$CASTOFF_RUN_DIR/.job.sh.$castoff_index"
    mv -- "$CASTOFF_RUN_DIR/.job.sh.$castoff_index" "$CASTOFF_RUN_DIR/job.sh"
  )
  export CASTOFF_RUN_DIR
}
# Where others may write to a folder above, one of theirs may have its place by now: so this is asked again
# before anything in it is run.
castoff_check_run_directory() {
  local castoff_mode
  if [[ -L $CASTOFF_RUN_DIR || ! -O $CASTOFF_RUN_DIR ]]; then
    echo "castoff: $CASTOFF_RUN_DIR is a link or another user's, so nothing is written there" >&2
    exit 1
  fi
  castoff_mode=$(stat --format %a -- "$CASTOFF_RUN_DIR")
  if ((8#$castoff_mode & 8#22)); then
    echo "castoff: $CASTOFF_RUN_DIR: others may write to it (mode $castoff_mode), so its contents may be theirs;" \
      "if you trust it, chmod go-w $(printf %q "$CASTOFF_RUN_DIR")" >&2
    exit 1
  fi
}
castoff_count_attempts() {
  export CASTOFF_ARRAY_INDEX=$((${CASTOFF_ARRAY_OFFSET:-0} + castoff_index))
  export CASTOFF_ATTEMPT=$((${CASTOFF_ATTEMPT:-0} + castoff_restarts))
  while [[ -e $CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT ]]; do
    CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) # started again without a count, as after a node failure
  done
}
castoff_begin_records() {
  export CASTOFF_ATTEMPT_DIR=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
  export CASTOFF_LOG_DIR=$CASTOFF_RUN_DIR/logs/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
  export CASTOFF_STOP_FILE=$CASTOFF_ATTEMPT_DIR/stop            # when it appears: stop early, please
  export CASTOFF_OUTCOME_FILE=$CASTOFF_ATTEMPT_DIR/outcome      # the program may write: done or resume
  export CASTOFF_FAILURE_FILE=$CASTOFF_ATTEMPT_DIR/failure.json # the first rank that failed
  castoff_rank=$CASTOFF_ATTEMPT_DIR/rank.sh                     # tells each rank who it is
  (
    umask 077
    mkdir -p -- "$CASTOFF_ATTEMPT_DIR" "$CASTOFF_LOG_DIR"
    castoff_about_start >"$CASTOFF_ATTEMPT_DIR/start.json"
    printf '%1000s\n' '' >"$CASTOFF_ATTEMPT_DIR/.ending.json" # room for the last word, should the disk be full
  )
}
castoff_record_ending() { # ENDING CODE
  if [[ $1 == failed && $2 == 0 ]]; then set -- failed 1; fi # a signal ended it, or setup's own exit
  (
    umask 077
    printf '{"ending": "%s", "code": %s, "time": %s%s}\n' "$1" "$2" "$(date +%s)" \
      "${castoff_reason:+, \"reason\": \"$(castoff_json "$castoff_reason")\"}" \
      1<>"$CASTOFF_ATTEMPT_DIR/.ending.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.ending.json" "$CASTOFF_ATTEMPT_DIR/ending.json"
  )
}
castoff_json() { # TEXT within the quotes of a JSON string, as far as there is room
  local LC_ALL=C castoff_text
  castoff_text=${1:0:400}
  castoff_text=${castoff_text//[[:cntrl:]]/ }
  castoff_text=${castoff_text//\\/\\\\}
  printf %s "${castoff_text//\"/\\\"}"
}
castoff_finish() { # CODE COMMAND: the last that this script does
  # A child that a signal ends as it begins still has this script's traps.
  if [[ $BASHPID != "$$" ]]; then builtin exit "$1"; fi
  set +e
  castoff_unset_user_functions
  castoff_run_hooks "${castoff_at_exit[@]}"
  castoff_report_setup "$1" "$2"
  castoff_record_ending "$castoff_ending" "$1"
  if [[ $castoff_ending == failed && $1 == 0 ]]; then builtin exit 1; fi # or jobs that wait for it would begin
  return "$1"
}
castoff_keep_exit() { # a trap of setup's for the end comes after ours, rather than in its place
  local castoff_theirs
  castoff_theirs=$(trap -p EXIT)
  if [[ $castoff_theirs == *'castoff_finish $?'* ]]; then return 0; fi
  builtin eval "castoff_theirs=(${castoff_theirs#trap -- })" # the command, and EXIT
  trap 'castoff_finish $? "$BASH_COMMAND"'$'\n'"${castoff_theirs[0]-}" EXIT
}
castoff_write() { # FILE [VALUE...]: a program for the nodes, which begins with these values
  local castoff_name
  {
    printf '%s\n' '#!/bin/sh' 'set -u' 'exec 9<&- # castoff_read has opened it'
    for castoff_name in "${@:2}"; do
      printf '%s=%s\n' "$castoff_name" "$(castoff_quoted "${!castoff_name-}")"
    done
    "castoff_text_${1%.sh}"
  } >"$CASTOFF_ATTEMPT_DIR/$1"
  chmod 700 "$CASTOFF_ATTEMPT_DIR/$1"
}
castoff_quoted() { # WORD...: as sh reads them
  local castoff_word castoff_tick="'\\''"
  for castoff_word; do printf "'%s' " "${castoff_word//\'/"$castoff_tick"}"; done
}
readonly -f castoff_run_hooks castoff_begin castoff_find_run_directory castoff_check_run_directory
readonly -f castoff_count_attempts castoff_begin_records
readonly -f castoff_record_ending castoff_json castoff_finish castoff_keep_exit castoff_write castoff_quoted
