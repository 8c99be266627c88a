"""Tests of launcher/logs."""
