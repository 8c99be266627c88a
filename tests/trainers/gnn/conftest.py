"""Tests of graph networks."""

from __future__ import annotations

import tests.geometric  # noqa: F401
