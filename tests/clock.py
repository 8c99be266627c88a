"""A clock that only sleeping moves, in place of castoff's own."""

from __future__ import annotations

import pytest

from castoff.launcher import clock


class Clock:
    """What castoff waits by, from 1000 s on; what sleeps does not wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 1000.0
        monkeypatch.setattr(clock, "now", lambda: self.now)
        monkeypatch.setattr(clock, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
