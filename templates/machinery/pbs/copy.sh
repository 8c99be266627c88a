castoff_submit_copy() { # WORDS of qsub. PBS starts no job twice: a copy of this one carries the count on
  local castoff_names=CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT castoff_said=
  castoff_names+=${castoff_copied:+,$castoff_copied}
  if [[ ! -e $CASTOFF_RUN_DIR/secrets.sh ]]; then castoff_names+=${castoff_secrets:+,$castoff_secrets}; fi
  castoff_said=$(
    castoff_check_run_directory
    cd "$castoff_submit_dir" &&
      CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) qsub -v "$castoff_names" "$@" "$CASTOFF_RUN_DIR/job.sh"
  )
  castoff_said=${castoff_said%%$'\n'*}
  [[ $castoff_said =~ ^[0-9]+(\[[0-9]*])?(\.[A-Za-z0-9.-]+)?$ ]] || return # without an id there is no copy
  (
    umask 077
    printf '{"job": "%s", "time": %s}\n' "$castoff_said" "$(date +%s)" >"$CASTOFF_ATTEMPT_DIR/.next.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.next.json" "$CASTOFF_ATTEMPT_DIR/next.json"
  ) || echo "castoff: job $castoff_said goes on, but could not be written down" >&2
}
readonly -f castoff_submit_copy
