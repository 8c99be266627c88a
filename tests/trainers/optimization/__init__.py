"""Tests of trainers.optimization."""
