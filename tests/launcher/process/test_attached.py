"""Commands that run with castoff's own standard streams."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from castoff.launcher.process import attached


def test_a_signal_before_the_command_is_known_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody saw it wait, and ended castoff at once."""
    start = attached.started

    def started(*given: Any) -> Any:
        process = start(*given)
        os.kill(os.getpid(), signal.SIGHUP)
        return process

    monkeypatch.setattr(attached, "started", started)
    assert attached.run_attached(["sleep", "1000"], os.environ) == (128 + signal.SIGHUP, True)
