"""Scripts for sbatch, qsub and flux batch, read and written again as job files. Pure."""
