"""Cases of a parametrised test, of which `make test` tries some and `make test-long` the others."""

from __future__ import annotations

from collections.abc import Container, Iterable
from fnmatch import fnmatchcase
from typing import Any

import pytest


def others_long(cases: Iterable[Any], everyday: Container[Any]) -> list[Any]:
    """All values of one parameter; those that are not `everyday` are long."""
    return [case if case in everyday else pytest.param(case, marks=pytest.mark.long) for case in cases]


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark the cases `long` whose test is marked `everyday` and whose ids fit none of its patterns.

    Raises:
        pytest.UsageError: a pattern fits no case of its test.
    """
    found: dict[tuple[str, str], bool] = {}
    for item in items:
        marker = item.get_closest_marker("everyday")
        if marker is None or not isinstance(item, pytest.Function):
            continue
        test, _, case = item.nodeid.partition("[")
        fitting = [pattern for pattern in marker.args if fnmatchcase(case[:-1], pattern)]
        if not fitting:
            item.add_marker(pytest.mark.long)
        if not any("[" in word for word in item.config.args):  # else a case was asked for by name
            for pattern in marker.args:
                found[test, pattern] = found.get((test, pattern), False) or pattern in fitting
    for (test, pattern), fits in found.items():
        if not fits:
            raise pytest.UsageError(f"{test}: {pattern!r}, which is to be everyday, fits no case of it")
