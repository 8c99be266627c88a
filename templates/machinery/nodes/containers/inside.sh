# Runs first in the container: what the job says counts more than what the image says.
if [ -z "${CASTOFF_WORKDIR:-}" ]; then
  echo "castoff: the environment did not reach the container: leave out flags that drop it, as --cleanenv does" >&2
  exit 1
fi
for castoff_name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT \
  $castoff_kept $castoff_given; do
  eval "[ -z \"\${CASTOFF_GIVEN_$castoff_name+set}\" ] || export $castoff_name=\"\$CASTOFF_GIVEN_$castoff_name\""
  unset -v "CASTOFF_GIVEN_$castoff_name"
done
