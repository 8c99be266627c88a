while IFS= read -r castoff_folder; do
  set -- "$castoff_bind_flag" "$castoff_folder:$castoff_folder" "$@"
done <<FOLDERS
$CASTOFF_BINDS
FOLDERS
