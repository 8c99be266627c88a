"""Tests of trainers.checks."""
