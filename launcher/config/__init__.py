"""Job files and site profiles: their fields and checks."""
