"""Ports for tests."""

from __future__ import annotations

import uuid

from castoff.launcher.launchers.local import this_host


def free_port() -> int:
    """A port that no connection of another program takes before the test does: it is below those that Linux
    gives to connections.
    """
    return this_host.free_port(uuid.uuid4().hex)
