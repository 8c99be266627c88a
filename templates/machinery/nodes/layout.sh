LOCAL_WORLD_SIZE=$((castoff_ranks_per_node - (NODE_RANK >= castoff_full_nodes)))
