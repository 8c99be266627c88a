"""What castoff asks of schedulers: one folder each."""
