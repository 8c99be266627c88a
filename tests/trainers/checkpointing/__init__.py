"""Tests of castoff.trainers.checkpointing."""
