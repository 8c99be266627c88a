"""castoff top: one live screen with your runs."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_runs
from castoff.launcher.cli.output import interval_option, is_terminal
from castoff.launcher.errors import CastoffError


@click.command("top", epilog=examples("castoff top", "castoff top pipeline --interval 10s"))
@click.argument("names", nargs=-1, shell_complete=complete_runs)
@interval_option
def command(names: tuple[str, ...], interval: float) -> int:
    """Watch your runs on one screen: their states, progress, metrics and logs; ? shows the keys.

    NAMES are names of runs or groups, in which * matches anything; without any, all runs are shown.

    Files are read at every interval. A scheduler is asked about all runs at once, every 2 to 30 s, or less
    often if the poll_interval of a site is longer.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)  # textual writes to standard error
    if not all(map(is_terminal, streams)) or os.environ.get("TERM") == "dumb":
        raise CastoffError(
            "castoff top needs a terminal that can show a screen; `castoff list` prints a table"
        )
    if find_spec("textual") is None:
        raise CastoffError(
            f"castoff top needs the package textual, which {sys.executable} does not have: "
            "python -m pip install 'castoff[tui]'; `castoff list --watch` needs no package"
        )
    from castoff.launcher.runs.index import Index
    from castoff.launcher.screen.app import TopApp
    from castoff.launcher.screen.looking import Looker
    from castoff.launcher.status.overview import adopt_unlisted, alone_in

    adopt_unlisted(os.environ, alone_in(Path()))
    index = Index.of(os.environ)
    app = TopApp(Looker(index, interval, names=names))
    code = app.run()
    if code is None:
        raise CastoffError(_crash(app.failure, index.path.with_name("top.log")))
    return code


def _crash(failure: BaseException | None, log: Path) -> str:
    """A line about an exception; its traceback is kept in a file."""
    words = "".join(traceback.format_exception_only(failure)).strip() if failure else "the screen was closed"
    kept = ""
    if failure is not None:
        with suppress(OSError):
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            log.write_text("".join(traceback.format_exception(failure)))
            kept = f"; its traceback is in {log}"
    return f"castoff top failed, which should not happen: {' '.join(words.split())}{kept}"
