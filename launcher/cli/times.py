"""Times and durations as people write and read them."""

from __future__ import annotations

import re
import time

import click

from launcher.config.quantities import DURATION_PATTERN, DURATION_TAKES, seconds


def duration(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """An option's callback: the seconds of a duration as job files have it."""
    if value is not None and not re.search(DURATION_PATTERN, value):
        raise click.BadParameter(f"{value!r} is not {DURATION_TAKES}")
    return None if value is None else seconds(value)


def brief(span: float) -> str:
    """A number of seconds at a glance: 45s, 12m, 3h05m, 2d07h, 53d.

    What a clock that was set back made negative is 0s.
    """
    total = max(int(span), 0)
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 100:
        return f"{total}s"
    if hours == 0:
        return f"{minutes}m"
    if days == 0:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{days}d{hours % 24:02d}h" if days < 10 else f"{days}d"


def moment(at: float) -> str:
    """A point in time, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
