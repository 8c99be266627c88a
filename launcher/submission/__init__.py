"""Actions on runs: submit, resubmit and cancel."""
