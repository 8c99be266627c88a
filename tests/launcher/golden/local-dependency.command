PYTHON -m launcher.cli.local_scheduler "$CASTOFF_RUN_DIR"
