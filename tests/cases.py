"""Cases of a parametrised test, of which `make test` tries some and `make test-long` the others."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def others_long(cases: Iterable[Any], everyday: Container[Any]) -> list[Any]:
    """All values of one parameter; those that are not `everyday` are long."""
    return [case if case in everyday else pytest.param(case, marks=pytest.mark.long) for case in cases]
