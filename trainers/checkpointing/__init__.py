"""What has to survive a job, and how it lies on the disk."""
