"""Tests of castoff.trainers.checks."""
