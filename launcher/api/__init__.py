"""What a Python program does with jobs and runs, by the functions that the verbs of the command line use."""
