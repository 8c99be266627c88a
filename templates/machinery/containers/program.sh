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
  castoff_run_hooks "${castoff_at_container[@]}"
  castoff_runtime=$(castoff_quoted "$@")
  castoff_write_container
  castoff_write_inside
}
readonly -f castoff_mount castoff_container
