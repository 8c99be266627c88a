"""Tests of trainers.data."""
