"""`castoff doctor`: what could keep a job from running, and what to do about it."""
