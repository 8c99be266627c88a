castoff_wait() { # for castoff_launcher, whatever signals come; leaves its code in castoff_code
  # bash may lose the code of what a signal ends while `wait` waits for it: so that asks when it has ended.
  while builtin kill -0 "$castoff_launcher" 2>/dev/null; do # ours
    read -r -t 0.1 -u 9 _ || true # nothing ever comes; traps run meanwhile
  done 9<> <(:)
  castoff_signalled=1
  while [[ -n $castoff_signalled ]]; do # a signal ends wait alone
    castoff_signalled=
    castoff_code=0
    builtin wait "$castoff_launcher" || castoff_code=$?
  done
}
readonly -f castoff_wait
