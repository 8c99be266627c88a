PYTHON -m launcher.local.scheduler "$CASTOFF_RUN_DIR"
