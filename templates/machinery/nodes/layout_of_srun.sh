LOCAL_WORLD_SIZE=$(($(echo "$SLURM_GTIDS" | tr -cd , | wc -c) + 1)) # where it goes, srun alone knows
