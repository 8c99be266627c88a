# --- Flux -----------------------------------------------------------------------------------------
castoff_scheduler_locate() {
  castoff_job=$(command flux job id --to=dec "${FLUX_ENCLOSING_ID:?castoff: submit this script with flux batch}")
  castoff_cluster=$(command flux --parent getattr jobid-path)
  castoff_index=0
  castoff_submit_dir=$PWD
  # castoff submit starts the job in its run directory, by which it is found in the queue.
  if [[ -n ${CASTOFF_RUN_DIR:-} && $PWD -ef $CASTOFF_RUN_DIR ]]; then
    castoff_submit_dir=${CASTOFF_SUBMITTED_FROM:-$PWD}
  fi
  castoff_restarts=0
  castoff_mark=FLUX_ENCLOSING_ID=$FLUX_ENCLOSING_ID # unlike other variables, jobs submitted by ranks do not inherit it
}
#if teardown
castoff_scheduler_kill_delay() { echo 5; } # kill-timeout
#endif
#if secrets
castoff_scheduler_advice="submit with flux batch --env=NAME"
#endif
#if together
castoff_job_hosts() { command flux hostlist -e -d $'\n' local; }
castoff_job_hosts_now() { # Flux keeps a host that it has lost in the job
  local castoff_up
  castoff_up=$(timeout -k 2 30 flux resource list --no-header --states=up --format='{nodelist}' 2>/dev/null) || return
  if [[ -n $castoff_up ]]; then command flux hostlist -e -d $'\n' "$castoff_up"; fi
}
#else
castoff_scheduler_hosts() { cat "$CASTOFF_RUN_DIR/hosts-$castoff_job" 2>&- || command flux hostlist -e -d $'\n' local; }
#endif
castoff_scheduler_clear_env() { unset -v "${!SLURM_@}" "${!PBS_@}"; } # they would mislead the launcher
# At the walltime Flux sends ALRM and HUP, and seconds later KILL.
castoff_scheduler_listen() { trap castoff_terminate ALRM; }
#if together
castoff_job_end_time() { # prints nothing if there is none, or it is unknown
#else
castoff_scheduler_end_time() { # prints nothing if there is none, or it is unknown
#endif
  local castoff_left
  castoff_left=$(command flux job timeleft 2>/dev/null || true)
  if [[ $castoff_left =~ ^[0-9]{1,9}$ ]]; then echo $(($(date +%s) + castoff_left)); fi
}
#if copy
#if together
castoff_job_requeue() { # Flux cannot restart a job: submit a copy, which continues the count
  local castoff_said castoff_path=$CASTOFF_RUN_DIR castoff_name castoff_names=(--env=CASTOFF_FOLLOWS)
#else
castoff_scheduler_requeue() { # Flux cannot restart a job: submit a copy, which continues the count
  local castoff_said castoff_path=$CASTOFF_RUN_DIR castoff_name castoff_names=()
#endif
  if [[ -e $CASTOFF_RUN_DIR/secrets.sh ]]; then # read from the file, so that no job record contains them
    for castoff_name in ${castoff_secrets-}; do castoff_names+=("--env-remove=$castoff_name"); done
  fi
  for castoff_name in CASTOFF_RUN_DIR CASTOFF_ATTEMPT CASTOFF_FIRST_ATTEMPT CASTOFF_SUBMITTED_FROM; do
    castoff_names+=("--env=$castoff_name")
  done
  castoff_said=$(
    castoff_check_run_dir
#if together
    CASTOFF_SUBMITTED_FROM=$castoff_submit_dir CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) CASTOFF_FOLLOWS=$castoff_job \
      command flux --parent batch --cwd="$castoff_path" --dependency="afterany:$castoff_job" \
      --output="$castoff_path/logs/shared-0.log" --setopt=output.mode=append "${castoff_names[@]}" "$castoff_path/job.sh"
#else
    CASTOFF_SUBMITTED_FROM=$castoff_submit_dir CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) \
      command flux --parent batch --cwd="$castoff_path" --dependency="afterany:$castoff_job" \
      --output="$castoff_path/logs/job-0.log" --setopt=output.mode=append "${castoff_names[@]}" "$castoff_path/job.sh"
#endif
  )
  castoff_said=$(command flux job id --to=dec "$castoff_said") || return # no id: no copy was submitted
  (
    umask 077
    printf '{"job": "%s", "time": %s}\n' "$castoff_said" "$(date +%s)" >"$CASTOFF_ATTEMPT_DIR/.next.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.next.json" "$CASTOFF_ATTEMPT_DIR/next.json"
  ) || echo "castoff: job $castoff_said was submitted, but could not be recorded" >&2
}
#endif
#if chain
castoff_scheduler_has_lost_host() { # whether this host's broker is gone: its jobs then get TERM, like cancelled ones
  timeout 5 flux --parent getattr rank >/dev/null 2>&1
  (($? == 1)) # 1: nothing listens; 124: it does not answer
}
#endif
