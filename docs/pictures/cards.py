"""What is drawn above the four cards of the site's first page."""

from __future__ import annotations

from castoff.launcher.text.svg import arrow, document, rect, text

_WIDTH, _HEIGHT = 360, 112
_GREEN, _BLUE, _ORANGE = "#7fc98f", "#8ec7f2", "#f0b37e"


def cards() -> dict[str, str]:
    """Each card's file and picture."""
    return {
        "card-tutorials.svg": _card("A terminal in which castoff submits a job of two ranks", _tutorials()),
        "card-how-to.svg": _card("Three questions, each with an arrow to its answer", _how_to()),
        "card-reference.svg": _card("Three fields of a job file, each with what it takes", _reference()),
        "card-explanation.svg": _card(
            "A job's script, its queue and its ranks, and the way back", _explanation()
        ),
    }


def _card(words: str, parts: list[str]) -> str:
    return document(_WIDTH, _HEIGHT, words, parts)


def _tutorials() -> list[str]:
    lines = ["$ castoff submit -f job.yaml", "[0] rank 0 of 2", "[1] rank 1 of 2"]
    return [
        rect(20, 16, 320, 80, kind="box", round_by=6),
        *(text(34, 42 + at * 20, line, "code") for at, line in enumerate(lines)),
    ]


def _how_to() -> list[str]:
    parts = []
    for at, (question, answer) in enumerate(
        {"hangs?": "stacks", "killed?": "memory", "12 h over?": "resume"}.items()
    ):
        y = 14 + at * 30
        parts += [rect(20, y, 110, 24, kind="box"), text(75, y + 17, question, "", "middle")]
        parts += [arrow((134, y + 12), (216, y + 12)), rect(220, y, 120, 24, fill=_GREEN)]
        parts.append(text(280, y + 17, answer, "ink", "middle"))
    return parts


def _reference() -> list[str]:
    parts = []
    rows = {"nodes": "whole number", "walltime": "duration", "command": "list of texts"}
    for at, (field, takes) in enumerate(rows.items()):
        y = 14 + at * 30
        parts += [rect(20, y, 320, 24, kind="box"), rect(20, y, 110, 24, fill=_BLUE)]
        parts += [text(30, y + 17, field, "ink"), text(142, y + 17, takes)]
    return parts


def _explanation() -> list[str]:
    parts = []
    for at, (step, colour) in enumerate({"script": _BLUE, "queue": _ORANGE, "ranks": _GREEN}.items()):
        x = 20 + at * 116
        parts += [rect(x, 26, 88, 36, fill=colour), text(x + 44, 49, step, "ink", "middle")]
        if at < 2:
            parts.append(arrow((x + 90, 44), (x + 114, 44)))
    return [*parts, arrow((296, 64), (296, 90), (180, 90), (180, 64))]
