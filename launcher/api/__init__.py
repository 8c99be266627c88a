"""Jobs and runs for Python programs, by the functions that the command line uses."""
