export PATH="$castoff_staged_path$PATH"
