"""The fixtures of castoff's own launcher, with ranks that begin as copies of one process."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from castoff.launcher.launchers.local.start import StartRequest
from castoff.launcher.launchers.preload.words import python_command
from tests.launcher.launchers.local import conftest as plain
from tests.launcher.launchers.local.conftest import run, spawn

__all__ = ["run", "spawn"]

_BECOME = """
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def begin_as_copies(monkeypatch: pytest.MonkeyPatch, **of_all: Any) -> None:
    """Have Python begin each program; what is not Python's, a copy becomes."""
    asked = plain.request

    def request(command: list[str], *others: Any, **fields: Any) -> StartRequest:
        if command and not python_command(command):
            command = [sys.executable, "-c", _BECOME, *command]
        return asked(command, *others, **{"preload": ["json"], **of_all, **fields})

    monkeypatch.setattr(plain, "request", request)


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that serves one start alone."""
    begin_as_copies(monkeypatch)
