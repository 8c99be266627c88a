# --- Runs whose directories the job uses ----------------------------------------------------------
castoff_earlier() { # NAME...: check that castoff submit has linked each
  local castoff_name castoff_folder
  for castoff_name; do
    if ! castoff_folder=$(cd -P "$CASTOFF_RUN_DIR/after/$castoff_name" 2>/dev/null && pwd); then
      echo "castoff: $CASTOFF_RUN_DIR/after/$castoff_name: there is no such run; castoff submit links it" >&2
      exit 1
    fi
#if binds
    castoff_folders+=("$castoff_folder")
#endif
  done
}
