# --- PBS ------------------------------------------------------------------------------------------
castoff_scheduler_locate() {
  castoff_job=${PBS_JOBID:?castoff: submit this script with qsub}
#if array
  castoff_job=${castoff_job/\[*\]/[]} # the array's id
  castoff_index=${PBS_ARRAY_INDEX:-0} # PBS has no arrays of one job
#else
  castoff_index=0
#endif
  castoff_submit_dir=$PBS_O_WORKDIR
  castoff_cluster='' castoff_restarts=0
  castoff_mark=PBS_JOBID=$PBS_JOBID # unlike other variables, jobs submitted by ranks do not inherit it
  castoff_read_run_dir
}
#if places
castoff_scheduler_choose_log() { # PBS named the log by its own index
  exec >>"$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>&1
  export PBS_ARRAY_INDEX=$CASTOFF_ARRAY_INDEX # for a program that reads PBS's variable
}
#endif
#if teardown
castoff_scheduler_kill_delay() { echo 10; } # the default kill_delay of a queue
#endif
#if secrets
castoff_scheduler_advice="submit with qsub -v NAME"
#endif
# Each host once, by its first name: n1 and n1.cluster are the same host; addresses are kept whole.
#if together
castoff_job_hosts() {
#else
castoff_scheduler_hosts() {
#endif
  awk 'NF {
    address = $1 ~ /^[0-9.]+$|:/
    known = $1 in hosts || $1 in shorter
    for (name = $1; !address && sub(/\.[^.]*$/, "", name);) known = known || name in hosts
    if (known) next
    print $1
    hosts[$1]
    for (name = $1; !address && sub(/\.[^.]*$/, "", name);) shorter[name]
  }' "$PBS_NODEFILE"
}
#if together nodes
castoff_job_hosts_now() { # PBS keeps a host that it has lost in the job
  local castoff_lost
  castoff_lost=$(timeout -k 2 30 pbsnodes -l 2>/dev/null |
    awk 'BEGIN { ORS = " " } $2 ~ /down|unknown/ { sub(/[.[].*/, "", $1); print $1 }') || return
  castoff_job_hosts | awk -v lost="$castoff_lost" 'BEGIN { for (n = split(lost, names); n; n--) gone[names[n]] }
    { name = $1; sub(/\..*/, "", name) } !(name in gone)'
}
castoff_job_hosts_due() { # a mpiexec may wait for a lost host for ever
  if ((SECONDS < castoff_next_ask)); then return 1; fi
  castoff_next_ask=$((SECONDS + 60))
}
castoff_next_ask=60
#endif
# qsub -v cannot pass ' and ": a path with one starts with %, and has %27 and %22 instead.
castoff_read_run_dir() {
  if [[ ${CASTOFF_RUN_DIR:-} != %* ]]; then return 0; fi
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR#%}
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR//[%]27/"'"}
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR//[%]22/'"'}
  CASTOFF_RUN_DIR=${CASTOFF_RUN_DIR//[%]25/"%"}
}
#if copy
castoff_run_dir_for_qsub() {
  local castoff_path=$CASTOFF_RUN_DIR
  if [[ $castoff_path == *[\'\"]* ]]; then
    castoff_path=${castoff_path//[%]/"%25"}
    castoff_path=${castoff_path//"'"/"%27"}
    castoff_path=%${castoff_path//'"'/"%22"}
  fi
  printf %s "$castoff_path"
}
#endif
castoff_scheduler_clear_env() { unset -v "${!SLURM_@}"; } # they would mislead the launcher
#if walltime together
castoff_job_end_time() { echo $(($(date +%s) + castoff_walltime)); } # PBS does not report it
#elif together
castoff_job_end_time() { :; }
#elif walltime
castoff_scheduler_end_time() { echo $(($(date +%s) + castoff_walltime)); } # PBS does not report it
#endif
#if copy
# --- Requeue: PBS cannot restart a job, so a copy of it is submitted, which continues the count -------
castoff_submit_copy() { # SECONDS to wait, WORDS of qsub; an id in the output counts as success, whatever the exit code
  local castoff_names=CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT,CASTOFF_FOLLOWS
  local castoff_said castoff_line castoff_next='' castoff_script=$CASTOFF_RUN_DIR/job.sh
  castoff_names+=${castoff_copied:+,$castoff_copied}
  if [[ ! -e $CASTOFF_RUN_DIR/secrets.sh ]]; then castoff_names+=${castoff_secrets:+,$castoff_secrets}; fi
  castoff_said=$(
    castoff_check_run_dir
    cd "$castoff_submit_dir" &&
      CASTOFF_RUN_DIR=$(castoff_run_dir_for_qsub) CASTOFF_FOLLOWS=$castoff_job \
        CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) \
        timeout -k 1 "$1" qsub -v "$castoff_names" "${@:2}" "$castoff_script"
  ) || true
  while read -r castoff_line; do
    if [[ $castoff_line =~ ^[0-9]+(\[[0-9]*])?\.[A-Za-z0-9._-]+$ ]]; then castoff_next=$castoff_line; fi
  done <<<"$castoff_said"
  if [[ -z $castoff_next ]]; then return 1; fi
  (
    umask 077
    printf '{"job": "%s", "time": %s}\n' "$castoff_next" "$(date +%s)" >"$CASTOFF_ATTEMPT_DIR/.next.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.next.json" "$CASTOFF_ATTEMPT_DIR/next.json"
  ) || echo "castoff: job $castoff_next was submitted, but could not be recorded" >&2
}
castoff_submit_copy_at_last() { # WORDS of qsub: retried while there is time
  local castoff_last=$((SECONDS + ${castoff_grace:-120})) castoff_left
  castoff_terminated=
  if [[ -n ${CASTOFF_DEADLINE:-} ]]; then
    castoff_left=$((CASTOFF_DEADLINE - $(date +%s)))
    if ((castoff_left < castoff_last - SECONDS)); then castoff_last=$((SECONDS + castoff_left)); fi
  fi
  while :; do
    castoff_left=$((castoff_last - SECONDS))
    if castoff_submit_copy "$((castoff_left > 5 ? castoff_left : 5))" "$@"; then return 0; fi
    if ((SECONDS >= castoff_last)) || [[ -n $castoff_terminated || -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
    read -r -t 1 _ <> <(:) || true # unlike sleep, runs traps
  done
}
#if !together
castoff_job_of() { # FOLDER of an attempt: prints its job
  sed -n 's/.*"job": *"\([^"]*\)".*/\1/p' "$1/start.json" 2>/dev/null || true
}
# A qsub without an answer may still have submitted a copy, so there may be two: the first to start runs, and the
# other exits.
castoff_scheduler_begin() {
  local castoff_before castoff_by castoff_last castoff_why=
  if [[ -z ${CASTOFF_FOLLOWS:-} ]]; then return 0; fi
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  castoff_by=$(castoff_job_of "$castoff_before")
  if [[ $castoff_by == "$castoff_job" ]]; then return 0; fi # PBS has restarted this job itself
  castoff_last=$(sed -n 's/.*"ending": *"\([^"]*\)".*/\1/p' "$castoff_before/ending.json" 2>/dev/null || true)
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then
    castoff_why="the run was asked to stop; castoff resubmit restarts it"
  elif [[ $castoff_by != "$CASTOFF_FOLLOWS" ]]; then
    castoff_why="another job has begun attempt $((CASTOFF_ATTEMPT - 1)) in its place"
#if expiry
  elif [[ -z $castoff_last && -e $castoff_before/stop ]]; then # killed at the walltime, after it was asked to stop
    castoff_lacks_progress $((CASTOFF_ATTEMPT - 1)) || true
#endif
  elif [[ $castoff_last != resume ]]; then
    castoff_why="attempt $((CASTOFF_ATTEMPT - 1)) has ended: ${castoff_last:-it was killed}"
  fi
  if [[ -z $castoff_why ]]; then
    (set -C && umask 077 && echo "$castoff_job" >"$castoff_before/follower") 2>/dev/null || true
    if [[ $(cat "$castoff_before/follower") != "$castoff_job" ]]; then
      castoff_why="another copy of job $CASTOFF_FOLLOWS has begun"
    fi
  fi
  if [[ -n $castoff_why ]]; then
    echo "castoff: job $castoff_job, a copy of $CASTOFF_FOLLOWS, does not begin: $castoff_why"
    exit 0
  fi
}
#endif
#if together
castoff_job_requeue() { # i-(i+1):2 is job i alone
#if array after
  castoff_submit_copy_at_last -J "$castoff_index-$((castoff_index + 1)):2" -W "depend=after:$castoff_job" \
    -o "$CASTOFF_RUN_DIR/logs/shared-^array_index^.log"
#elif array
  castoff_submit_copy_at_last -J "$castoff_index-$((castoff_index + 1)):2" \
    -o "$CASTOFF_RUN_DIR/logs/shared-^array_index^.log"
#elif after
  castoff_submit_copy_at_last -W "depend=after:$castoff_job" -o "$CASTOFF_RUN_DIR/logs/shared-0.log"
#else
  castoff_submit_copy_at_last -o "$CASTOFF_RUN_DIR/logs/shared-0.log"
#endif
}
#elif !members
castoff_resume_code=75 # not 0, so that the copy runs
castoff_copy_words() { # sets an array; the copy waits until this job has ended with a code other than 0
  castoff_words=(-W "depend=afternotok:$PBS_JOBID" -o "$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log")
}
castoff_scheduler_submit_next() { # at the start, so that the job resumes even if PBS fails at its end
  local castoff_words castoff_before
#if restart
  if (($(castoff_count_requeues) >= castoff_requeue_max)); then return 0; fi
#else
  if ((CASTOFF_ATTEMPT - CASTOFF_FIRST_ATTEMPT >= castoff_requeue_max)); then return 0; fi
#endif
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  if [[ -e $castoff_before/next.json && $(castoff_job_of "$castoff_before") == "$castoff_job" ]]; then
    cp -- "$castoff_before/next.json" "$CASTOFF_ATTEMPT_DIR/next.json" # PBS has restarted this job
    return 0
  fi
  castoff_copy_words
  castoff_submit_copy 30 "${castoff_words[@]}" ||
    echo "castoff: the job that resumes this one could not be submitted yet; it is tried again at the end" >&2
}
castoff_scheduler_requeue() {
  local castoff_words
  if [[ -e $CASTOFF_ATTEMPT_DIR/next.json ]]; then return 0; fi
  castoff_copy_words
  castoff_submit_copy_at_last "${castoff_words[@]}"
}
castoff_scheduler_finish() { # after exit code 0 PBS deletes the copy itself
  local castoff_next
  if [[ $castoff_ending == 'done' || ($castoff_ending == resume && ! -e $CASTOFF_RUN_DIR/stop) ]]; then return 0; fi
  castoff_next=$(sed -n 's/.*"job": *"\([^"]*\)".*/\1/p' "$CASTOFF_ATTEMPT_DIR/next.json" 2>/dev/null || true)
  # If this fails, the copy starts, finds this attempt's ending, and exits.
  if [[ -n $castoff_next ]] && timeout -k 1 3 qdel "$castoff_next" >/dev/null 2>&1; then
    rm -f -- "$CASTOFF_ATTEMPT_DIR/next.json"
  fi
}
#elif after
castoff_scheduler_requeue() { # i-(i+1):2 is member i alone. Nothing can wait for a single member, and that the array
  # has begun is already true: it replaces the script's own dependency.
  castoff_submit_copy_at_last -J "$castoff_index-$((castoff_index + 1)):2" -W "depend=after:$castoff_job" \
#if places
    -o "$CASTOFF_RUN_DIR/logs/pbs-^array_index^.log"
#else
    -o "$CASTOFF_RUN_DIR/logs/job-^array_index^.log"
#endif
}
#else
castoff_scheduler_requeue() { # i-(i+1):2 is member i alone. Nothing can wait for a single member
  castoff_submit_copy_at_last -J "$castoff_index-$((castoff_index + 1)):2" \
#if places
    -o "$CASTOFF_RUN_DIR/logs/pbs-^array_index^.log"
#else
    -o "$CASTOFF_RUN_DIR/logs/job-^array_index^.log"
#endif
}
#endif
#endif
