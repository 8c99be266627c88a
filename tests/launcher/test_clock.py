"""Waiting for an answer."""

from __future__ import annotations

import pytest

from castoff.launcher import clock
from tests.clock import Clock


def test_until_looks_every_pause_and_once_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Clock(monkeypatch)
    looks: list[float] = []

    def look() -> bool:
        looks.append(time.now)
        return len(looks) == 3

    assert clock.until(look, 2.0, 60.0)
    assert looks == [1000.0, 1002.0, 1004.0]
    assert not clock.until(look, 2.0, 3.0)
    assert looks[3:] == [1004.0, 1006.0, 1008.0]
    assert not clock.until(look, 2.0, 0.0)
    assert looks[6:] == [1008.0]
