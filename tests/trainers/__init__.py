"""Tests of the training core."""
