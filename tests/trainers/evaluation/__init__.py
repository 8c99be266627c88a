"""Tests of trainers.evaluation."""
