"""From a job and a site to a plan and its script; pure."""
