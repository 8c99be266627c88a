CASTOFF_RUN_DIR="$CASTOFF_RUN_DIR" sbatch --parsable "--output=$CASTOFF_RUN_DIR/logs/job-0.log" --export=CASTOFF_RUN_DIR "$CASTOFF_RUN_DIR/job.sh"
