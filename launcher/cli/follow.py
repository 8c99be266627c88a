"""Follow a run on the terminal to its end: `castoff logs -f`, and the verbs that take --follow."""

from __future__ import annotations

import contextlib
import select
import sys
import time

import click

from castoff.launcher.cli.output import has_colours, report
from castoff.launcher.logs.following import Follower
from castoff.launcher.logs.positions import Positions, followed
from castoff.launcher.logs.show import End, Json, Text
from castoff.launcher.logs.sources import Selection, members_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import why
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.status.watch import status

_EVERYTHING = Selection()


def follow_run(run: RunDirectory, selection: Selection = _EVERYTHING, *, as_json: bool = False) -> int:
    """Follow a run to its end, and return the exit code of the run or of the selected members. Ctrl-C does
    not stop the run.
    """
    try:
        members = members_of(run, status(run, Poller(AT_A_GLANCE)), selection)
        show = Json() if as_json else _text(several=len(members) > 1, labels=len(selection.ranks) != 1)
        follower = Follower(
            run,
            selection,
            show,
            write=write,
            report=report,
            pause=pause,
            positions=followed.get() or Positions(),
        )
        end = follower.follow()
    except KeyboardInterrupt:
        return not_stopped(run.id)
    write(show.end(end))
    report(last_word(end))
    return 1 if end.code is None else end.code


def not_stopped(followed: str) -> int:
    """Report after Ctrl-C that the run or group with this id was not stopped; return the exit code."""
    click.echo(err=True)
    again, end_it = f"castoff logs -f {followed}", f"castoff cancel {followed}"
    report(f"{followed} was not stopped: `{again}` follows it again, `{end_it}` ends it")
    return 130


def write(data: bytes) -> None:
    """Write to standard output, and flush it at once."""
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def last_word(end: End) -> str:
    """How a followed run ended, in one line."""
    if end.failed is None:
        return f"{end.id}: {end.ending}" + (f": {end.reason}" if end.reason else "")
    words = [f"{end.id}: {end.ending}", *why(end.failed.failure, end.failed.reason)]
    if end.failed.log is not None:
        words.append(f"its log: {end.failed.log}")
    return "; ".join(words)


def _text(*, several: bool, labels: bool) -> Text:
    return Text(several=several, terminal=sys.stdout.isatty(), colours=has_colours(), labels=labels)


def pause(seconds: float) -> None:
    """Wait for some seconds, but raise an error at once if standard output loses its reader.

    Raises:
        BrokenPipeError: nobody reads standard output any more.
    """
    poller, end = select.poll(), time.monotonic() + seconds
    with contextlib.suppress(OSError, ValueError):  # standard output is not a file
        poller.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(1000 * seconds)):
        raise BrokenPipeError
    time.sleep(max(0.0, end - time.monotonic()))  # a Mac's poll(2) returns at once for a terminal
