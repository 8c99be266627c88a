"""When each attempt of a run began and ended, and how."""

from __future__ import annotations

from typing import Any

from castoff.launcher.text.svg import document, rect, text

COLOURS = {"done": "#7fc98f", "resume": "#8ec7f2", "walltime": "#8ec7f2", "preempted": "#8ec7f2"}
"""Of endings; the others are failures."""
_FAILED, _WAITING = "#f0937e", "none"
_LEFT, _WIDTH = 180, 560


def timeline(status: dict[str, Any]) -> str:
    """From what `castoff status --json` prints of a run with one member."""
    attempts = status["members"][0]["attempts"]
    first, last = attempts[0]["started"], max(one["ended"] for one in attempts)
    scale = _WIDTH / (last - first)
    parts = [text(20, 30, f"The attempts of {status['name']}", "title")]
    said = []
    for row, one in enumerate(attempts):
        y, x = 52 + row * 46, _LEFT + (one["started"] - first) * scale
        seconds = one["ended"] - one["started"]
        how = "restarted in the same job" if one["restart"] else "resubmitted" if row else "submitted"
        parts.append(rect(_LEFT, y, _WIDTH, 28, kind=_WAITING))
        parts.append(rect(x, y, seconds * scale, 28, fill=COLOURS.get(one["ending"], _FAILED)))
        parts += [text(20, y + 12, f"attempt {one['attempt']}"), text(20, y + 27, how, "small")]
        parts.append(text(x + 8, y + 19, one["ending"], "ink"))
        said.append(f"attempt {one['attempt']}, {how}, {one['ending']} after {seconds:.0f} s")
    y = 52 + len(attempts) * 46
    for second in range(0, int(last - first) + 1, 2):
        parts.append(text(_LEFT + second * scale, y + 6, f"{second} s", "small", "middle"))
    return document(_LEFT + _WIDTH + 30, y + 24, "; ".join(said), parts)
