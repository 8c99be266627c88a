"""castoff wait."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from launcher.cli.output import StillGoing, brief, is_terminal, json_option, print_json
from launcher.cli.run_options import run_options, runs_meant
from launcher.errors import printable
from launcher.runs.states import RunStatus, members_words
from launcher.status.watch import looks

if TYPE_CHECKING:
    from rich.status import Status


@click.command("wait")
@run_options
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Give up after so many seconds (exit code 124)."
)
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], timeout: float | None, as_json: bool) -> int:
    """Wait until runs are over, and exit with their code: the first that is not 0, in the order given.

    A run whose ending is unknown counts as 1. With --name, the newest run of each such name counts also if
    it is over.
    """
    found = runs_meant(runs, names, newest_too=True)
    told: set[str] = set()
    with contextlib.closing(_Progress()) as progress:
        for now in looks(found, timeout):
            ended = [one for one in now if one.over and one.directory not in told]
            told.update(one.directory for one in ended)
            if ended:
                progress.close()
                if as_json:
                    print_json(*map(msgspec.to_builtins, ended))
                else:
                    click.echo("\n".join(f"{one.id}: {one.ending}" for one in ended))
            progress.show([one for one in now if not one.over])
    if left := [one for one in now if not one.over]:
        raise StillGoing("\n".join(f"{one.id} is still {one.state} after {timeout:g} s" for one in left))
    return next((code for one in now if (code := 1 if one.code is None else one.code)), 0)


class _Progress:
    """Shows how runs are doing, on a terminal alone, in lines that vanish in the end."""

    def __init__(self) -> None:
        self._shown: Status | None = None

    def show(self, left: list[RunStatus]) -> None:
        """Show these instead of what is shown."""
        if not left or not is_terminal(sys.stderr):
            return
        from rich.console import Console
        from rich.text import Text

        text = Text("\n".join(map(_words, left)), no_wrap=True, overflow="ellipsis")
        if self._shown is None:
            console = Console(stderr=True, markup=False, emoji=False, highlight=False)
            self._shown = console.status(text, spinner="line")
            self._shown.start()
        self._shown.update(text)

    def close(self) -> None:
        """Take away what is shown, so that something can be printed."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None  # which would take away what is printed if it were started again


def _words(one: RunStatus) -> str:
    """How a run is doing, in one line."""
    now = time.time()
    running = [member.attempts[-1] for member in one.members if member.state == "running" and member.attempts]
    words = [f"{one.id}: {one.state}"]
    if one.stop_asked:
        words.append("asked to stop")
    if len(one.members) > 1:
        words.append(members_words(one.counts))
    starts = [attempt.started for attempt in running if attempt.started]
    if starts:
        words.append(f"for {brief(now - min(starts))}")
        if one.walltime:
            words.append(f"at most {brief(max(starts) + one.walltime - now)} left")
    return printable(", ".join(words))
