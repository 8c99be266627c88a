"""Python functions as jobs, through submitit: `launcher.executors` submits them."""
