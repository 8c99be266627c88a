castoff_inherit() { # NAME...: the environment but for these variables is dropped
  local castoff_name castoff_kept_names=" $* "
  while read -r castoff_name; do
    case $castoff_name in
      CASTOFF_* | HOME | LANG | LOGNAME | PATH | PWD | SHELL | TERM | TMPDIR | USER) ;;
      *)
        if [[ $castoff_kept_names != *" $castoff_name "* ]]; then
          unset -v "$castoff_name" 2>/dev/null || true # some are read-only
        fi
        ;;
    esac
  done < <(compgen -e)
  while read -r _ _ castoff_name; do # functions, too
    unset -f "$castoff_name" 2>/dev/null || true # ours are read-only
  done < <(declare -Fx)
}
readonly -f castoff_inherit
