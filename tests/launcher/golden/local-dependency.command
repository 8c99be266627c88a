PYTHON -m castoff.program castoff.launcher.cli.local_scheduler "$CASTOFF_RUN_DIR"
