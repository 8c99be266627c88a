if ! cd "$CASTOFF_WORKDIR"; then
  printf 'castoff: %s is not in the container; name it in container.binds\n' "$CASTOFF_WORKDIR" >&2
  exit 1
fi
exec "$@"
