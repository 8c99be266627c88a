"""Tests of castoff.trainers.optimization."""
