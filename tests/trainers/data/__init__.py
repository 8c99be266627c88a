"""Tests of castoff.trainers.data."""
