"""Reports on runs for people: a run's page, and the table of its members' results."""
