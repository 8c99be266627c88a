"""Tests of castoff.trainers.configuration."""
