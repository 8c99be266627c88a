castoff_check_started "$castoff_ranks"
[ "${castoff_beside_it:-$LOCAL_WORLD_SIZE}" -eq "$LOCAL_WORLD_SIZE" ] ||
  castoff_refuse "rank $castoff_process has $castoff_beside_it ranks on its node;" \
    "this script lays $LOCAL_WORLD_SIZE out there"
[ "$castoff_local" -lt "$LOCAL_WORLD_SIZE" ] ||
  castoff_refuse "rank $castoff_process has local rank $castoff_local;" \
    "this script lays $LOCAL_WORLD_SIZE ranks out there"
RANK=$castoff_process
LOCAL_RANK=$castoff_local
WORLD_SIZE=$castoff_ranks
CASTOFF_LAUNCHER=$castoff_launcher_name
CASTOFF_RANK=$RANK/$WORLD_SIZE # tells this rank from those that its program may start itself
export RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK CASTOFF_LAUNCHER CASTOFF_RANK
castoff_count=$LOCAL_WORLD_SIZE
