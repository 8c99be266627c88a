"""Tests of trainers.configuration."""
