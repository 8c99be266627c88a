# Should the image set one of these too, inside.sh puts it back.
for castoff_name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT $castoff_kept; do
  eval "[ -z \"\${$castoff_name+set}\" ] || export CASTOFF_GIVEN_$castoff_name=\"\$$castoff_name\""
done
