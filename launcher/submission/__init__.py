"""What acts on runs: submit, resubmit, launch, cancel."""
