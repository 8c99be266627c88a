"""Tests of castoff.trainers.task."""
