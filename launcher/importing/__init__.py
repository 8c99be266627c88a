"""Convert scripts for sbatch, qsub and flux batch to job files. Pure functions."""
