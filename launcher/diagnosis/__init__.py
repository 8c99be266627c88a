"""What `castoff doctor` looks at: what could keep a job from running, each with what to do about it."""
