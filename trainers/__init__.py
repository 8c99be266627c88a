"""The training core that runs inside a job."""
