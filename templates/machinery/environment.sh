# --- Environment ----------------------------------------------------------------------------------
castoff_clear_stale_env() { # what a parent's ranks were told, and setup's functions that are named as what we call
  castoff_unset_user_functions
  castoff_keep_exit
  castoff_listen # again: setup may have traps of its own
  set +C # we write over files of ours
  unset -v "${castoff_stale[@]}"
  castoff_clear_other_schedulers
  export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
}
castoff_unset_user_functions() { # functions of setup's or of the environment are not what we mean by these
  POSIXLY_CORRECT=1 # so that unset is bash's own
  unset -f builtin shopt unset
  unset -v POSIXLY_CORRECT
  shopt -u inherit_errexit 2>/dev/null || ((1)) # which bash before 5.2 keeps of that
  unset -f awk bash break cat cd chmod cksum cmp command compgen continue cp date declare disown echo env \
    eval exec exit export false find getent grep head hostname id kill local mkdir mv printf qdel qsub read \
    readonly return scontrol sed set shift sleep sort squeue stat tail timeout trap true umask wait wc : \
    .
  unset -f df ls mktemp rm rmdir sh sha256sum tar tr unzip # of programs for the nodes, where sh is bash
}
readonly -f castoff_clear_stale_env castoff_unset_user_functions
