castoff_end_time() { # empty where there is none, or nobody knows
  local castoff_left
  castoff_left=$(command flux job timeleft 2>/dev/null || true)
  if [[ $castoff_left =~ ^[0-9]{1,9}$ ]]; then echo $(($(date +%s) + castoff_left)); fi
}
readonly -f castoff_end_time
