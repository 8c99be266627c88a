"""Numbers, sizes and times in words, for people; `config.quantities` reads what people write."""

from __future__ import annotations

import time
from collections.abc import Sequence


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things, as `1 rank`, `2 ranks`; `plural`: the plural, unless it is the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def named(noun: str, names: Sequence[object]) -> str:
    """Things with their names, as `job 7`, `jobs 7, 8`."""
    return f"{noun}{'s' * (len(names) > 1)} {', '.join(map(str, names))}"


def listed(names: Sequence[str], most: int) -> str:
    """The first names of a list, and the number of further ones: `a, b and 3 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def size_words(count: int) -> str:
    """A number of bytes: `312 bytes`, `1.2 MiB`."""
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / (1 << 10 * power):.1f} {'KMGT'[power - 1]}iB"


def brief(span: float) -> str:
    """A number of seconds in brief: 45s, 12m, 3h05m, 2d07h, 53d.

    A negative span, as after a clock was set back, is 0s.
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
    """A time in seconds since the epoch, as local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
