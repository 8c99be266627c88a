export CASTOFF_BINDS= # folders that are inside what they are outside, one a line
castoff_bind() {      # FOLDER, unless it lies in one that is there already
  local castoff_around
  case $1 in
    / | *["$castoff_unbindable"]* | *$'\n'*)
      echo "castoff: container: $castoff_runtime_name cannot bind a folder of this name: $1" >&2
      exit 1
      ;;
  esac
  while IFS= read -r castoff_around; do
    if [[ -n $castoff_around && $1/ == "$castoff_around"/* ]]; then return; fi
  done <<<"$CASTOFF_BINDS"
  CASTOFF_BINDS+=${CASTOFF_BINDS:+$'\n'}$1
}
castoff_bind_all() {
  local castoff_folder
  castoff_folders=("$castoff_submit_dir" "$CASTOFF_RUN_DIR" "$PWD" ${castoff_folders[@]+"${castoff_folders[@]}"})
  for castoff_folder in "${castoff_folders[@]}"; do castoff_bind "$castoff_folder"; done
}
castoff_at_container+=(castoff_bind_all)
readonly -f castoff_bind castoff_bind_all
