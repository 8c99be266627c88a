"""Tests of trainers.program."""
