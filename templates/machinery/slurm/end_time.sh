castoff_end_time() {
  local castoff_end=${SLURM_JOB_END_TIME:-}
  if [[ -z $castoff_end ]]; then # older than Slurm 23.02
    castoff_end=$(squeue --noheader --job "$castoff_member" --format %e 2>/dev/null || true)
    castoff_end=$(date -d "${castoff_end:-unknown}" +%s 2>/dev/null || true)
  fi
  echo "$castoff_end" # empty where nobody knows
}
readonly -f castoff_end_time
