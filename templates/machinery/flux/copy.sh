castoff_requeue() { # Flux starts no job twice: a copy of this one carries the count on
  local castoff_said castoff_path=$CASTOFF_RUN_DIR castoff_name castoff_names=()
  if [[ -e $CASTOFF_RUN_DIR/secrets.sh ]]; then # so no record of a job holds them
    for castoff_name in ${castoff_secrets-}; do castoff_names+=("--env-remove=$castoff_name"); done
  fi
  for castoff_name in CASTOFF_RUN_DIR CASTOFF_ATTEMPT CASTOFF_FIRST_ATTEMPT CASTOFF_SUBMITTED_FROM; do
    castoff_names+=("--env=$castoff_name")
  done
  castoff_said=$(
    castoff_check_run_directory
    CASTOFF_SUBMITTED_FROM=$castoff_submit_dir CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) \
      command flux --parent batch --cwd="$castoff_path" --dependency="afterany:$castoff_job" \
      --output="$castoff_path/logs/job-0.log" --setopt=output.mode=append "${castoff_names[@]}" "$castoff_path/job.sh"
  )
  castoff_said=$(command flux job id --to=dec "$castoff_said") || return # without an id there is no copy
  (
    umask 077
    printf '{"job": "%s", "time": %s}\n' "$castoff_said" "$(date +%s)" >"$CASTOFF_ATTEMPT_DIR/.next.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.next.json" "$CASTOFF_ATTEMPT_DIR/next.json"
  ) || echo "castoff: job $castoff_said was submitted, but could not be recorded" >&2
}
readonly -f castoff_requeue
