"""Tests of the causal sets."""
