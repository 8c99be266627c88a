"""Job file, script, ranks and status of one job side by side, as its commands printed them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from castoff.launcher.text.svg import arrow, document, rect, text

_WIDTH, _LINE = 455, 17


def overview(shown: list[tuple[str, str]]) -> str:
    """Four panels, from the commands of `docs.pictures.record`."""
    (job, script, ranks, status) = (re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines() for _, output in shown)
    panels = [
        ("You write a job file", job),
        ("castoff renders the script, here for Aurora", _script(script)),
        (
            "Each rank gets its number, here on a laptop",
            [line for line in ranks if re.match(r"\[\d\] |castoff: .*done", line)],
        ),
        (
            "castoff reports what became of it",
            [
                line.partition(", began")[0]
                for line in status
                if re.match(r"run|site|submitted|state|attempt", line)
            ],
        ),
    ]
    rows = [max(len(lines) for _, lines in panels[at : at + 2]) for at in (0, 2)]
    parts: list[str] = []
    top = 16
    for at, (title, lines) in enumerate(panels):
        row, column = divmod(at, 2)
        x, y = 16 + column * (_WIDTH + 34), top + row * (rows[0] * _LINE + 86)
        height = rows[row] * _LINE + 52
        parts += [rect(x, y, _WIDTH, height, kind="box", round_by=6), text(x + 14, y + 24, title, "title")]
        parts += [text(x + 14, y + 50 + n * _LINE, line[:58], "code") for n, line in enumerate(lines)]
    middle = top + (rows[0] * _LINE + 52) / 2
    below = top + rows[0] * _LINE + 86
    parts.append(arrow((16 + _WIDTH + 2, middle), (16 + _WIDTH + 32, middle)))
    parts.append(arrow((733, below - 32), (733, below - 17), (244, below - 17), (244, below - 2)))
    parts.append(arrow((16 + _WIDTH + 2, below + 60), (16 + _WIDTH + 32, below + 60)))
    words = " → ".join(title for title, _ in panels)
    return document(976, below + rows[1] * _LINE + 68, words, parts)


def _script(lines: Sequence[str]) -> list[str]:
    """The directives, and how the ranks start."""
    directives = [line for line in lines if line.startswith(("#!", "#PBS"))]
    at = next(number for number, line in enumerate(lines) if line.startswith("castoff_start "))
    start = re.sub(r" (--cpu-bind|--line-buffer)", r" \\\n  \1", lines[at]).splitlines()
    return [*directives[:9], "…", *start, *(line for line in lines[at + 1 : at + 3])]
