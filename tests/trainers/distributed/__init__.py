"""Tests of trainers.distributed."""
