"""castoff's own verbs, as they are run on the terminal while the screen steps aside."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

from launcher.submission.attached import run_attached

_BY_PAGER = '"$@" 2>&1 | '
_INTERRUPTED = 130


def castoff_command(*words: str) -> list[str]:
    """The command line of a verb, run by this Python."""
    safely = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *safely, "-m", "castoff_plugin", "launcher.cli.main", *words]


def pager(environ: Mapping[str, str]) -> str | None:
    """What shows a long text: PAGER, else less; None: nothing does, or `PAGER=cat` says so."""
    chosen = environ.get("PAGER") or ("less" if shutil.which("less") else "cat")
    return None if chosen == "cat" else chosen


def show_logs(run: str, *, over: bool, member: int | None) -> None:
    """Show a run's logs by a pager; those of a run that is not over are followed until it is, or Ctrl-C.

    Raises:
        CastoffError: nothing can be started.
    """
    words = castoff_command("logs", *([] if over else ["-f"]), *_of_member(member), run)
    through = pager(os.environ) if over else None
    if through is None:
        if run_attached(words, os.environ).code != _INTERRUPTED:
            _wait_for_reader()
        return
    environ = {"LESS": "R", **os.environ}
    run_attached(["sh", "-c", _BY_PAGER + through, "castoff", *words], environ)


def open_shell(run: str, *, member: int | None) -> None:
    """Open a shell beside a run's ranks, until it ends.

    Raises:
        CastoffError: nothing can be started.
    """
    if run_attached(castoff_command("shell", *_of_member(member), run), os.environ).code not in (
        0,
        _INTERRUPTED,
    ):
        _wait_for_reader()


def _of_member(member: int | None) -> list[str]:
    return [] if member is None else ["--member", str(member)]


def _wait_for_reader() -> None:
    """Let a person read what stands there."""
    try:
        input("\nEnter returns to castoff top ")
    except (EOFError, KeyboardInterrupt):
        print()
