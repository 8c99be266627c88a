# --- Container of each rank's program --------------------------------------------------------------
castoff_given=
castoff_inside() { # NAME VALUE: set a variable only inside the container
  export "CASTOFF_GIVEN_$1=$2"
  castoff_given+=" $1"
}
#if image_file
castoff_check_image() {
  if [[ ! -e $castoff_image ]]; then
    echo "castoff: container: the image is not on $(hostname): $castoff_image" >&2
    exit 1
  fi
}
#endif
#if binds
export CASTOFF_BINDS= # folders bound at the same path, one per line
castoff_bind() {      # FOLDER, unless it is inside one already bound
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
#endif
#if !launcher_enters
castoff_mounts=
castoff_mount() { # SOURCE:TARGET[:ro]
  castoff_mounts+=$(castoff_quoted "$castoff_bind_flag" "$1")
}
castoff_container() { # RUNTIME FLAG...
  if ! command -v "$1" >/dev/null; then
    echo "castoff: container: $1 is not on PATH on $(hostname); load it in setup, as in setup: [module load $1]" >&2
    exit 1
  fi
  export CASTOFF_WORKDIR=$PWD
#if image_file
  castoff_check_image
#endif
#if binds
  castoff_bind_all
#endif
  castoff_runtime=$(castoff_quoted "$@")
  castoff_write_container
  castoff_write_inside
}
castoff_write_container() { # write container.sh, which starts the runtime
  castoff_write container.sh castoff_image castoff_mounts castoff_runtime castoff_bind_flag castoff_kept \
    <<'CASTOFF_CONTAINER'
# If the image sets one of these too, inside.sh restores it.
for castoff_name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT $castoff_kept; do
  eval "[ -z \"\${$castoff_name+set}\" ] || export CASTOFF_GIVEN_$castoff_name=\"\$$castoff_name\""
done
#include runtime
#if binds
while IFS= read -r castoff_folder; do
  set -- "$castoff_bind_flag" "$castoff_folder:$castoff_folder" "$@"
done <<FOLDERS
$CASTOFF_BINDS
FOLDERS
#endif
eval "exec $castoff_runtime"'"$@"'
CASTOFF_CONTAINER
}
#endif
castoff_write_inside() { # write inside.sh, which runs first in the container
#if loader !torchrun
  castoff_write inside.sh castoff_kept castoff_given castoff_python_folder castoff_staged_path castoff_loading \
    <<'CASTOFF_INSIDE'
#else
  castoff_write inside.sh castoff_kept castoff_given castoff_python_folder castoff_staged_path <<'CASTOFF_INSIDE'
#endif
# Runs first in the container: restores the job's variables, which win over the image's.
if [ -z "${CASTOFF_WORKDIR:-}" ]; then
  echo "castoff: the environment did not reach the container: leave out flags that drop it, as --cleanenv does" >&2
  exit 1
fi
for castoff_name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT \
  $castoff_kept $castoff_given; do
  eval "[ -z \"\${CASTOFF_GIVEN_$castoff_name+set}\" ] || export $castoff_name=\"\$CASTOFF_GIVEN_$castoff_name\""
  unset -v "CASTOFF_GIVEN_$castoff_name"
done
#if libraries
LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/.singularity.d/libs # apptainer puts the GPU libraries in it
#endif
#if python
export PATH="$castoff_python_folder:$PATH"
#endif
#if activate
export PATH="$castoff_staged_path$PATH"
#endif
if ! cd "$CASTOFF_WORKDIR"; then
  printf 'castoff: %s is not in the container; name it in container.binds\n' "$CASTOFF_WORKDIR" >&2
  exit 1
fi
#if loader !torchrun
eval "$castoff_loading"
#endif
exec "$@"
CASTOFF_INSIDE
}
