"""From a job and a site to a plan, and from the plan to its script. Pure."""
