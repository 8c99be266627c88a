"""Tests of castoff.trainers.program."""
