"""Tests of trainers.task."""
