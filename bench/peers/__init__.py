"""What castoff and others do where a training stops, dies or validates: run, not quoted."""
