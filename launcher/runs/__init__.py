"""The directories of runs, and the records in them."""
