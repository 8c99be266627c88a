# --- Run directory: records and logs --------------------------------------------------------------
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || # older versions lose setup's exit codes in traps
  { echo "castoff: this needs bash 4.4 or newer, not $BASH_VERSION: name one as the profile's shell" >&2 && exit 1; }
castoff_begin() {
  castoff_unset_user_functions
  castoff_scheduler_locate
  castoff_find_run_dir
  castoff_count_attempts
#ifdef castoff_scheduler_begin
  castoff_scheduler_begin
#endif
#if chain
  castoff_check_chain
#endif
  castoff_begin_records
#ifdef castoff_scheduler_choose_log
  castoff_scheduler_choose_log
#endif
#if !script
  if ((CASTOFF_ATTEMPT)); then echo "castoff: attempt $CASTOFF_ATTEMPT begins"; fi # a log may hold several attempts
#endif
  castoff_ending=failed castoff_reason=''
  castoff_listen # before the EXIT trap, which would record a job ended by a signal as failed
  trap 'castoff_finish $? "$BASH_COMMAND"' EXIT # keeps the exit code
#if together
  if [[ -e $CASTOFF_RUN_DIR/stop || -e $CASTOFF_RUN_DIR/cancel-$CASTOFF_ARRAY_INDEX ]]; then # asked before it began
#else
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # the run was asked to stop while this job was pending
#endif
    echo "castoff: stopped before it began; castoff resubmit restarts it" >&2
    castoff_ending=cancelled
    exit 143
  fi
#if rerun
  castoff_check_rerun
#endif
#ifdef castoff_scheduler_submit_next
  castoff_scheduler_submit_next
#endif
#if secrets
  castoff_read_secrets
#endif
#if deadline
  CASTOFF_DEADLINE=$(castoff_scheduler_end_time) # seconds since 1970; the stop is CASTOFF_GRACE seconds earlier
  export CASTOFF_DEADLINE CASTOFF_GRACE=$castoff_grace
#else
  unset -v CASTOFF_DEADLINE CASTOFF_GRACE # there is no walltime; these are a parent job's
#endif
#if attempts
  castoff_await_fences
#endif
  cd "$castoff_submit_dir" || exit
}
# castoff submit sets it. Otherwise the script makes castoff-<job id> in the folder it was submitted from,
# and copies itself into it; a directory that a parent job left in the environment is ignored.
castoff_find_run_dir() {
  local castoff_tries=0
  until [[ -z ${CASTOFF_RUN_DIR:-} || -e $CASTOFF_RUN_DIR/job.sh ]] || ((++castoff_tries > 60)); do
    ls -- "${CASTOFF_RUN_DIR%/*}" >/dev/null 2>&1 || ((1)) # ls: a shared file system may show it up to a minute late
    sleep 1
  done
  if [[ -n ${CASTOFF_RUN_DIR:-} && ! -e $CASTOFF_RUN_DIR ]]; then
    echo "castoff: $(hostname) does not see $CASTOFF_RUN_DIR: a run directory must lie where all nodes see it;" \
      "castoff submit --runs-dir names another folder; should it be another job's, unset CASTOFF_RUN_DIR first" >&2
    exit 1
  fi
  if [[ -z ${CASTOFF_RUN_DIR:-} ]] || ! cmp -s -- "$0" "$CASTOFF_RUN_DIR/job.sh"; then
    CASTOFF_RUN_DIR=$castoff_submit_dir/castoff-$castoff_job
    unset -v CASTOFF_ATTEMPT CASTOFF_ARRAY_OFFSET CASTOFF_FIRST_ATTEMPT CASTOFF_CHAIN CASTOFF_FOLLOWS
#if together
    unset -v CASTOFF_MEMBERS
#endif
    [[ -L $CASTOFF_RUN_DIR ]] || mkdir -p -m 700 -- "$CASTOFF_RUN_DIR"
  fi
  castoff_check_run_dir
  cmp -s -- "$0" "$CASTOFF_RUN_DIR/job.sh" || (
    umask 077
    echo '*' >"$CASTOFF_RUN_DIR/.gitignore" # keeps the run out of git
    cp -- "$0" "$CASTOFF_RUN_DIR/.job.sh.$castoff_index"
    mv -- "$CASTOFF_RUN_DIR/.job.sh.$castoff_index" "$CASTOFF_RUN_DIR/job.sh"
  )
}
castoff_check_run_dir() { # repeated before a file in it is run, since others may have replaced it
  local castoff_mode
  if [[ -L $CASTOFF_RUN_DIR || ! -O $CASTOFF_RUN_DIR ]]; then
    echo "castoff: $CASTOFF_RUN_DIR is a link or another user's, so nothing is written there" >&2
    exit 1
  fi
  castoff_mode=$(stat --format %a -- "$CASTOFF_RUN_DIR") # includes a POSIX access list's mask, but not NFSv4 lists
  if ((8#$castoff_mode & 8#22)); then
    echo "castoff: $CASTOFF_RUN_DIR: others may write to it (mode $castoff_mode), so its contents may be theirs;" \
      "if you trust it, chmod go-w $(printf %q "$CASTOFF_RUN_DIR")" >&2
    exit 1
  fi
}
castoff_count_attempts() {
#if together
  export CASTOFF_ARRAY_INDEX=$CASTOFF_SLOT_MEMBER
#elif places
  export CASTOFF_ARRAY_INDEX
  CASTOFF_ARRAY_INDEX=$(castoff_members | sed -n "$((castoff_index + 1))p")
  : "${CASTOFF_ARRAY_INDEX:?castoff: this array has no job of that index}"
#else
  export CASTOFF_ARRAY_INDEX=$((${CASTOFF_ARRAY_OFFSET:-0} + castoff_index))
#endif
#if together
  export CASTOFF_ATTEMPT
#else
  export CASTOFF_ATTEMPT=$((${CASTOFF_ATTEMPT:-0} + castoff_restarts))
#endif
  while [[ -e $CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT ]]; do
    CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) # restarted by the scheduler without a count, as after a node failure
  done
#if requeue | copy | chain
  export CASTOFF_FIRST_ATTEMPT=${CASTOFF_FIRST_ATTEMPT:-0} # the first of this submission
#endif
}
#if together !sparse
castoff_members() { seq 0 $((CASTOFF_ARRAY_COUNT - 1)); } # prints the members' numbers, ascending
#elif places | sparse secrets | together
castoff_members() { # prints the members' numbers, ascending
  local castoff_part IFS=,
  for castoff_part in $castoff_array_indices; do
    if [[ $castoff_part =~ ^([0-9]+)-([0-9]+)(:([0-9]+))?$ ]]; then
      seq "${BASH_REMATCH[1]}" "${BASH_REMATCH[4]:-1}" "${BASH_REMATCH[2]}"
    else
      echo "$castoff_part"
    fi
  done
}
#endif
castoff_begin_records() {
  export CASTOFF_RUN_DIR CASTOFF_ATTEMPT_DIR=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
  export CASTOFF_LOG_DIR=$CASTOFF_RUN_DIR/logs/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
  export CASTOFF_STOP_FILE=$CASTOFF_ATTEMPT_DIR/stop            # when it exists, the program should stop early
  export CASTOFF_OUTCOME_FILE=$CASTOFF_ATTEMPT_DIR/outcome      # the program may write done or resume
  export CASTOFF_FAILURE_FILE=$CASTOFF_ATTEMPT_DIR/failure.json # the first failure of a rank
  export CASTOFF_METRICS_FILE=$CASTOFF_ATTEMPT_DIR/metrics.jsonl # the program may append JSON lines with step
  export CASTOFF_PROGRESS_FILE=$CASTOFF_ATTEMPT_DIR/progress    # the program may write its progress, a number
  export CASTOFF_STACK_DIR=$CASTOFF_LOG_DIR/stacks              # a rank writes its stacks here on QUIT: rank-00000.txt
#if many_ranks !container
  castoff_local_stacks=castoff-$UID-stacks-$(echo "$CASTOFF_ATTEMPT_DIR" | cksum | tr ' ' -) # on each node's own disk
#endif
  castoff_rank=$CASTOFF_ATTEMPT_DIR/rank.sh                     # sets RANK etc. and starts each rank's program
  (
    umask 077
    mkdir -p -- "$CASTOFF_ATTEMPT_DIR/ended" "$CASTOFF_STACK_DIR" # ended: which ranks have succeeded
#if restart
    printf '{"job": "%s"%s, "host": "%s", "time": %(%s)T%s}\n' "$castoff_job" \
      "${castoff_cluster:+, \"cluster\": \"$castoff_cluster\"}" "$(hostname)" -1 \
      "${castoff_restarts_done:+, \"restart\": $castoff_restarts_done}" >"$CASTOFF_ATTEMPT_DIR/start.json"
#else
    printf '{"job": "%s"%s, "host": "%s", "time": %(%s)T}\n' "$castoff_job" \
      "${castoff_cluster:+, \"cluster\": \"$castoff_cluster\"}" "$(hostname)" -1 >"$CASTOFF_ATTEMPT_DIR/start.json"
#endif
    printf '%1000s\n' '' >"$CASTOFF_ATTEMPT_DIR/.ending.json" # reserves space for the ending, in case the disk fills up
#if fence
    echo live >"$CASTOFF_ATTEMPT_DIR/fence"
#endif
  )
}
castoff_finish() { # CODE COMMAND: run as this script exits
  # A child ended by a signal as it starts still has this script's traps.
  if [[ $BASHPID != "$$" ]]; then builtin exit "$1"; fi
  set +e
#if setup
  castoff_unset_user_functions
#endif
#if fence
  castoff_check_fence
#endif
#if teardown
#if setup
  castoff_report_setup "$1" "$2"
#endif
  castoff_tear_down "$castoff_ending" "$1"
#endif
#ifdef castoff_scheduler_finish
  castoff_scheduler_finish
#endif
#if preload
  castoff_end_agents
#endif
#if secrets !together
  castoff_remove_secrets
#endif
#if stage teardown
  castoff_unstage "${castoff_code:-1}"
#elif stage
  castoff_unstage 1
#endif
#if setup !teardown
  castoff_report_setup "$1" "$2"
#endif
#if together
#ifdef castoff_job_hosts_now
  if [[ $castoff_ending =~ ^(cancelled|failed)$ && $(castoff_field signal 2>/dev/null) =~ ^(SIGKILL)?$ ]] &&
    castoff_has_lost_host; then castoff_ending=node-failure; fi
#endif
#endif
#ifdef castoff_scheduler_has_lost_host
  if [[ $castoff_ending == cancelled ]] && castoff_scheduler_has_lost_host; then castoff_ending=node-failure; fi
#endif
  castoff_record_ending "$castoff_ending" "$1"
#if notify
  castoff_notify_end "$castoff_ending" 2>/dev/null # whatever happens there, it is not the job's output
#endif
  if [[ $castoff_ending == failed && $1 == 0 ]]; then builtin exit 1; fi # or dependent jobs would start
  return "$1"
}
#if restart
castoff_record_ending() { # ENDING CODE [restart: another attempt of this job follows]
#else
castoff_record_ending() { # ENDING CODE
#endif
  if [[ $1 == failed && $2 == 0 ]]; then set -- failed 1; fi # ended by a signal, or by exit in setup
  (
    umask 077
#if restart
    printf '{"ending": "%s", "code": %s, "time": %(%s)T%s%s}\n' "$1" "$2" -1 "${3:+, \"restart\": true}" \
      "${castoff_reason:+, \"reason\": \"$(castoff_json "$castoff_reason")\"}" \
      1<>"$CASTOFF_ATTEMPT_DIR/.ending.json" &&
#elif setup | teardown | hang | preflight | notify | requeue | copy | chain | rerun
    printf '{"ending": "%s", "code": %s, "time": %(%s)T%s}\n' "$1" "$2" -1 \
      "${castoff_reason:+, \"reason\": \"$(castoff_json "$castoff_reason")\"}" \
      1<>"$CASTOFF_ATTEMPT_DIR/.ending.json" &&
#else
    printf '{"ending": "%s", "code": %s, "time": %(%s)T%s}\n' "$1" "$2" -1 \
      "${castoff_reason:+, \"reason\": \"$castoff_reason\"}" 1<>"$CASTOFF_ATTEMPT_DIR/.ending.json" &&
#endif
#if fence !attempts
      mv "$CASTOFF_ATTEMPT_DIR/.ending.json" "$CASTOFF_ATTEMPT_DIR/ending.json" &&
      echo over 1<>"$CASTOFF_ATTEMPT_DIR/fence"
#else
      mv "$CASTOFF_ATTEMPT_DIR/.ending.json" "$CASTOFF_ATTEMPT_DIR/ending.json"
#endif
  )
#if attempts
  castoff_raise_fence
#endif
}
#if !here !script | torchrun | stage | container | hang
# --- Programs of the nodes ------------------------------------------------------------------------
castoff_write() { # FILE [VARIABLE...]: write standard input as a program for the nodes, with these variables set
  local castoff_name
  {
    printf '%s\n' '#!/bin/sh' 'set -u' 'exec </dev/null # castoff_read has opened it there'
    for castoff_name in "${@:2}"; do
      printf '%s=%s\n' "$castoff_name" "$(castoff_quoted "${!castoff_name-}")"
    done
    cat
  } >"$CASTOFF_ATTEMPT_DIR/$1"
  chmod 700 "$CASTOFF_ATTEMPT_DIR/$1"
}
castoff_quoted() { # WORD...: quoted for sh
  local castoff_word castoff_tick="'\\''"
  for castoff_word; do printf "'%s' " "${castoff_word//\'/"$castoff_tick"}"; done
}
# A node opens its program once, checks it and runs the open file, so that nobody can replace it in between. It is
# read from standard input, as mpiexec may need any other descriptor (PMI_FD). A node may see it late, or not at all.
castoff_read='castoff_tries=0; until [ -e "$0" ] || [ "$castoff_tries" -ge 60 ]; do'\
' castoff_tries=$((castoff_tries + 1)); ls "${0%/*}" >/dev/null 2>&1; sleep 1; done;'\
' [ -e "$0" ] || { echo "castoff: $(hostname) does not see ${0%/*}: a run directory must'\
' lie where all nodes see it; castoff submit --runs-dir names another folder" >&2; exit 126; };'\
' exec <"$0" && [ -O /proc/self/fd/0 ] && case $(ls -lnL /proc/self/fd/0) in'\
' -????-??-*) exec /bin/sh -c ". /proc/self/fd/0" "$0" "$@" ;; esac;'\
' echo "castoff: others may have written $0 on $(hostname), so it is not run" >&2; exit 126'
#if here
castoff_run_checked=(/bin/sh -c "$castoff_read")
#elif survives
# This launcher keeps the other ranks running after an exit code.
castoff_run_checked=(/bin/sh -c "${castoff_read//exit 126/kill -s KILL \$\$}")
#else
castoff_run_checked=(/bin/sh -c "${castoff_read//exit 126/exit 1}")
#endif
#endif
