"""`castoff doctor`: finds what could keep a job from running, and remedies."""
