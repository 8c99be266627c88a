castoff_check_started "$castoff_nodes"
export NODE_RANK
set -- python -m torch.distributed.run --nnodes="$castoff_nodes" --node-rank="$NODE_RANK" \
  --nproc-per-node="$LOCAL_WORLD_SIZE" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" \
  --no-python /bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/torchrun_rank.sh" "$@"
castoff_local=0
castoff_count=1
