"""Tests of castoff.trainers.reporting."""
