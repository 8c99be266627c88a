"""Which rank reads which sample, and when: each exactly once."""
