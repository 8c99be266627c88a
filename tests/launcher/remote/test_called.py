"""How a verb that runs for a caller on another machine ends once the caller has gone."""

from __future__ import annotations

import os
import select
import signal
from unittest.mock import Mock

import pytest

from castoff.launcher.remote import called
from tests.clock import Clock


@pytest.mark.parametrize("event", [select.POLLERR, select.POLLHUP])
def test_it_is_interrupted_before_it_is_killed(event: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, heard = Clock(monkeypatch), []
    answers = iter([[(1, select.POLLNVAL)], [(1, event)]])
    monkeypatch.setattr(select, "poll", lambda: Mock(poll=lambda: next(answers)))
    monkeypatch.setattr(os, "kill", lambda process, number: heard.append((process, number, clock.now)))
    called._watch_output(signal.SIGINT)
    me = os.getpid()
    assert heard == [(me, signal.SIGINT, 1001), (me, signal.SIGTERM, 1016), (me, signal.SIGKILL, 1031)]
