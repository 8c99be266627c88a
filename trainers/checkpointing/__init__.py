"""What has to survive a job, and its form on disk."""
