castoff_need() { # NAME of a variable that env_from asks for
  if [[ -r $CASTOFF_RUN_DIR/secrets.sh ]]; then # castoff submit wrote it
    # shellcheck source=/dev/null
    . "$CASTOFF_RUN_DIR/secrets.sh"
  fi
  if [[ -z ${!1+set} ]]; then
    echo "castoff: env_from names $1, but it is not set; ${castoff_to_give/NAME/$1}" >&2
    exit 1
  fi
  export "${1?}"
}
readonly -f castoff_need
