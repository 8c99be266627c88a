"""Metrics as an aligned table."""

from __future__ import annotations

from collections.abc import Mapping


def aligned(rows: Mapping[str, float]) -> str:
    """A line for each name and number, aligned."""
    width = max(map(len, rows), default=0)
    return "\n".join(f"{name:{width}}  {value:.4f}" for name, value in rows.items())
