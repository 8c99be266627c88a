PYTHON -m castoff_plugin castoff.launcher.cli.local_scheduler "$CASTOFF_RUN_DIR"
