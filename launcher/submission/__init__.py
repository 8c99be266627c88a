"""Actions that change runs: submit, resubmit and cancel."""
