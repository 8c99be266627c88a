castoff_runtime_name=pyxis castoff_unbindable=':,"\$`'
castoff_mounts=
castoff_mount() { castoff_mounts+=,$1; } # SOURCE:TARGET[:ro]
castoff_container() { # FLAG of srun...
  local castoff_name
  if [[ $(srun --help 2>&1) != *--container-image* ]]; then
    echo "castoff: container: srun on $(hostname) knows no --container-image: pyxis is not set up on this cluster" >&2
    exit 1
  fi
  export CASTOFF_WORKDIR=$PWD
  castoff_run_hooks "${castoff_at_container[@]}"
  # Should the image set one of these too, inside.sh puts it back.
  for castoff_name in MASTER_ADDR MASTER_PORT ${castoff_kept-}; do
    if [[ -n ${!castoff_name+set} ]]; then export "CASTOFF_GIVEN_$castoff_name=${!castoff_name}"; fi
  done
  castoff_pyxis=("$@")
  castoff_write_inside
}
castoff_ask_pyxis() {
  local castoff_folder castoff_all=
  while IFS= read -r castoff_folder; do
    castoff_all+=,$castoff_folder:$castoff_folder
  done <<<"$CASTOFF_BINDS"
  castoff_all+=$castoff_mounts
  castoff_flags+=("--container-image=$castoff_image" ${castoff_pyxis[@]+"${castoff_pyxis[@]}"}
    "--container-mounts=${castoff_all#,}")
}
castoff_at_start+=(castoff_ask_pyxis)
readonly -f castoff_mount castoff_container castoff_ask_pyxis
