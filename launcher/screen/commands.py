"""castoff's own verbs, as they are run on the terminal while the screen steps aside."""

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
"""Codes of a command to which such a signal was passed on, because this process had got it."""


def castoff_command(*words: str) -> list[str]:
    """The command line of a verb, run by this Python."""
    return own_program("castoff.__main__", *words)


def pager(environ: Mapping[str, str]) -> str | None:
    """What shows a long text: PAGER, else less; None: nothing does, or `PAGER=cat` says so."""
    chosen = environ.get("PAGER") or ("less" if shutil.which("less") else "cat")
    return None if chosen == "cat" else chosen


def show_logs(run: str, *, over: bool, member: int | None) -> int:
    """Show a run's logs by a pager; those of a run that is not over are followed until it is, or Ctrl-C.

    Returns the exit code of what has shown them.

    Raises:
        CastoffError: nothing can be started.
    """
    words = castoff_command("logs", *([] if over else ["-f"]), *_of_member(member), run)
    through = pager(os.environ) if over else None
    if through is None:
        return _run(words, silent=(_INTERRUPTED,))
    environ = {"LESS": "R", **os.environ}
    return run_attached(["sh", "-c", _BY_PAGER + through, "castoff", *words], environ).code


def open_shell(run: str, *, member: int | None) -> int:
    """Open a shell beside a run's ranks, wait until it ends, and return its exit code.

    Raises:
        CastoffError: nothing can be started.
    """
    return _run(castoff_command("shell", *_of_member(member), run), silent=(0, _INTERRUPTED))


def _of_member(member: int | None) -> list[str]:
    return [] if member is None else ["--member", str(member)]


def _run(words: list[str], *, silent: Sequence[int]) -> int:
    """Run a command; unless it ends with a `silent` code, what it wrote stays until a person has read it."""
    code = run_attached(words, os.environ).code
    if code not in (*silent, *ENDED_FROM_OUTSIDE):
        try:
            input("\nEnter returns to castoff top ")
        except (EOFError, KeyboardInterrupt):
            print()
    return code
