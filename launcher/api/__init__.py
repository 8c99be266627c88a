"""Jobs and runs for Python programs, with the functions of the command line."""
