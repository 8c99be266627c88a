"""Tests of trainers.reporting."""
