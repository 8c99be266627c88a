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
#if image_file
  castoff_check_image
#endif
#if nvidia
  export NVIDIA_VISIBLE_DEVICES=${NVIDIA_VISIBLE_DEVICES-all} # makes enroot add the GPUs to the container
  export NVIDIA_DRIVER_CAPABILITIES=${NVIDIA_DRIVER_CAPABILITIES-compute,utility}
#endif
  castoff_bind_all
  # If the image sets one of these too, inside.sh restores it.
  for castoff_name in MASTER_ADDR MASTER_PORT ${castoff_kept-}; do
    if [[ -n ${!castoff_name+set} ]]; then export "CASTOFF_GIVEN_$castoff_name=${!castoff_name}"; fi
  done
  castoff_pyxis=("$@")
  castoff_write_inside
}
castoff_runtime_flags() {
  local castoff_folder castoff_all=
  while IFS= read -r castoff_folder; do
    castoff_all+=,$castoff_folder:$castoff_folder
  done <<<"$CASTOFF_BINDS"
  castoff_all+=$castoff_mounts
  castoff_flags+=("--container-image=$castoff_image" ${castoff_pyxis[@]+"${castoff_pyxis[@]}"}
    "--container-mounts=${castoff_all#,}")
}
