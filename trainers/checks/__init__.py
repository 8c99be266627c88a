"""Detects mistakes that would otherwise go unnoticed, in the first step on all ranks."""
