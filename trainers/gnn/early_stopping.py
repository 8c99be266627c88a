"""Early stopping, under QuantumGrav's name for the module."""

from __future__ import annotations

from castoff.trainers.evaluation.early_stopping import DefaultEarlyStopping

__all__ = ["DefaultEarlyStopping"]
