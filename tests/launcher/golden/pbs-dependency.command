qsub -o "$CASTOFF_RUN_DIR/logs/job-0.log" -v "CASTOFF_RUN_DIR=$CASTOFF_RUN_DIR" "$CASTOFF_RUN_DIR/job.sh"
