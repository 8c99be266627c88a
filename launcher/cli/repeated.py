"""Print lines repeatedly: in place on a terminal, else one block after another."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable

import click

from castoff.launcher.cli.output import is_terminal

_UP, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[{}F", "\x1b[K", "\x1b[J"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PLAIN = "\x1b[0m"


class Repeated:
    """Lines that replace those printed before; if they do not fit the screen, the first are omitted."""

    def __init__(self) -> None:
        self._printed = 0
        """Number of lines on the screen, printed by the last call."""

    def print(self, heading: str, lines: Iterable[str]) -> None:
        """Print the heading, which is never omitted, and lines. Without a terminal, an empty line follows."""
        if not is_terminal(sys.stdout):
            click.echo("\n".join([heading, *lines, ""]))
            sys.stdout.flush()
            return
        size = shutil.get_terminal_size()
        shown = [heading, *lines]
        room = max(size.lines - 1, 2)  # the last line is the cursor's
        if left_out := max(len(shown) - room, 0):
            note = f"{left_out + 1} lines do not fit above these"
            shown = [heading, note, *shown[left_out + 2 :]]
        text = "".join(f"{_fit(line, size.columns)}{_REST_OF_LINE}\n" for line in shown)
        up = _UP.format(min(self._printed, room)) if self._printed else ""
        # One write, so that nothing flickers.
        sys.stdout.write(f"{up}{text}{_REST_OF_SCREEN}")
        sys.stdout.flush()
        self._printed = len(shown)


def _fit(line: str, width: int) -> str:
    """Cut a line to the screen's width, not counting its styles."""
    if len(_STYLE.sub("", line)) <= width:
        return line
    kept, room = [], width - 1
    for part in re.split(f"({_STYLE.pattern})", line):
        if _STYLE.fullmatch(part):
            kept.append(part)
        else:
            kept.append(part[:room])
            room -= len(part[:room])
    return f"{''.join(kept)}{_PLAIN}…"
