"""Tests of castoff.trainers.distributed."""
