"""What acts on runs: submitting, starting again, launching here, cancelling."""
