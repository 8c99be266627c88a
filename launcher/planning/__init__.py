"""Makes a plan from a job and a site, and a script from the plan. Pure."""
