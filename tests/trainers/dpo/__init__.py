"""Tests of the score-entropy diffusion."""
