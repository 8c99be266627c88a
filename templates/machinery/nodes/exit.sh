exit "$castoff_code"
