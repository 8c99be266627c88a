"""Early stopping, under the module's name that QuantumGrav has for it."""

from __future__ import annotations

from castoff.trainers.evaluation.early_stopping import DefaultEarlyStopping

__all__ = ["DefaultEarlyStopping"]
