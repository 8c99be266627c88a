"""Tests of castoff.trainers.evaluation."""
