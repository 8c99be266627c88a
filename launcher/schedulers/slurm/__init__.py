"""All that is known of Slurm."""
