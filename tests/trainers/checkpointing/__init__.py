"""Tests of trainers.checkpointing."""
