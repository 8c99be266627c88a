PYTHON -m castoff_plugin launcher.cli.local_scheduler "$CASTOFF_RUN_DIR"
