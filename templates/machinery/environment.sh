# --- Environment ----------------------------------------------------------------------------------
castoff_forget() { # what a parent's ranks were told, and functions of setup's that are named as what we call
  castoff_use_own_words
  castoff_keep_exit
  castoff_listen # again: setup may have traps of its own
  set +C # we write over files of ours
  unset -v "${castoff_stale[@]}"
  castoff_forget_other_schedulers
  export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
}
castoff_use_own_words() {
  unset -f awk bash break builtin cat cd chmod cksum cmp command compgen cp date disown echo env exec exit \
    export false find grep hostname id kill local mkdir mv printf qsub read readonly return scontrol sed set \
    shift sleep sort squeue stat tail timeout trap true umask unset wait wc : .
}
readonly -f castoff_forget castoff_use_own_words
