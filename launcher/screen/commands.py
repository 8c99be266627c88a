"""castoff's commands that use the terminal while the screen is suspended."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence

from castoff.launcher.process.attached import run_attached
from castoff.launcher.process.own_program import own_program

_BY_PAGER = '"$@" 2>&1 | '
_INTERRUPTED = 130

ENDED_FROM_OUTSIDE = (128 + signal.SIGHUP, 128 + signal.SIGTERM)
"""Exit codes of a command to which this process passed on a SIGHUP or SIGTERM."""


def castoff_command(*words: str) -> list[str]:
    """The command line that runs one of castoff's commands with this Python."""
    return own_program("castoff.__main__", *words)


def pager(environ: Mapping[str, str]) -> str | None:
    """The command that shows long texts: PAGER, else less; None if there is none, or if PAGER is cat."""
    chosen = environ.get("PAGER") or ("less" if shutil.which("less") else "cat")
    return None if chosen == "cat" else chosen


def show_logs(run: str, *, over: bool, member: int | None) -> int:
    """Show a run's logs in a pager; if the run is not over, follow them until it is, or until Ctrl-C.

    Returns the exit code of the command that shows them.

    Raises:
        CastoffError: the command cannot be started.
    """
    words = castoff_command("logs", *([] if over else ["-f"]), *_of_member(member), run)
    through = pager(os.environ) if over else None
    if through is None:
        return _run(words, silent=(_INTERRUPTED,))
    environ = {"LESS": "R", **os.environ}
    return run_attached(["sh", "-c", _BY_PAGER + through, "castoff", *words], environ).code


def open_shell(run: str, *, member: int | None) -> int:
    """Open a shell next to a run's ranks, wait for its end, and return its exit code.

    Raises:
        CastoffError: the command cannot be started.
    """
    return _run(castoff_command("shell", *_of_member(member), run), silent=(0, _INTERRUPTED))


def _of_member(member: int | None) -> list[str]:
    return [] if member is None else ["--member", str(member)]


def _run(words: list[str], *, silent: Sequence[int]) -> int:
    """Run a command. Its output stays until the user presses Enter, unless it ends with a `silent` code."""
    code = run_attached(words, os.environ).code
    if code not in (*silent, *ENDED_FROM_OUTSIDE):
        try:
            input("\nEnter returns to castoff top ")
        except (EOFError, KeyboardInterrupt):
            print()
    return code
