"""Tests of what generates causal sets."""
