"""castoff --on NAME watch: send the messages about runs of another machine by the webhooks of this one."""

from __future__ import annotations

from collections.abc import Mapping

import click

from castoff.launcher import clock
from castoff.launcher.errors import report
from castoff.launcher.remote import passing
from castoff.launcher.remote.machine import Machine
from castoff.launcher.remote.ssh import Bounded

_PAUSE = 20.0
"""Seconds between two calls: each starts castoff there, and asks its scheduler."""

_LARGEST = 1 << 22
"""Limit of an answer's size, in bytes."""


def watch_elsewhere(machine: Machine, words: list[str], environ: Mapping[str, str]) -> int:
    """Call `castoff watch` there again and again, and send what it finds due; reconnect if the connection
    breaks.

    Raises:
        CastoffError: the first connection cannot be made, or castoff cannot be started on the machine.
    """
    from castoff.launcher.notify.relay import Sender

    sender, name = Sender(environ, click.echo), machine.entry.name

    def call() -> int:
        parts: list[bytes] = []
        bounded = Bounded(f"{name}: what `castoff watch` prints there", _LARGEST)
        passed = passing.Passed(
            machine, "watch", ["--relay", sender.state, *words], typed=machine.command("watch", *words)
        )
        code = passing.run(passed, environ, write=lambda data: parts.append(bounded.take(data)))
        if code == 0:
            left[0] = sender.take(b"".join(parts), name)
        return code

    left = [True]
    while left[0] or sender.has_more:
        if code := passing.through_breaks(machine, call):
            return code
        if (left[0] or sender.has_more) and not sender.has_news:
            clock.sleep(_PAUSE)
    report(f"{name}: no run with `notify` is pending or running")
    return 0
