PYTHON -P -m castoff.launcher.cli.local_scheduler "$CASTOFF_RUN_DIR"
