"""castoff watch: send the messages about runs that their jobs could not send."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import report
from castoff.launcher.cli.run_options import run_options, runs_meant
from castoff.launcher.errors import CastoffError

if TYPE_CHECKING:
    from castoff.launcher.notify.message import Message


@click.command(
    "watch",
    epilog=examples(
        "castoff watch",
        "nohup castoff watch >watch.log 2>&1 &",
    ),
)
@run_options(only_active=True)
@click.option("--relay", hidden=True, help="Look once, and hand messages over to another machine.")
def command(runs: tuple[str, ...], names: tuple[str, ...], relay: str | None) -> None:
    """Send the messages that jobs with `notify` could not send themselves.

    A job that its scheduler ends, as at the walltime, sends none, and many compute nodes reach no server.
    Start this on a login node, in tmux or with nohup. It watches all runs with `notify`, also those that are
    submitted later, or only RUNS, and ends when none is left. With --on, this machine's webhooks are used.
    """
    from castoff.launcher.notify.watching import Watcher, alone, watched_run

    meant = runs_meant(runs, names, newest_too=True) if runs or names else []
    for run in meant:
        if not watched_run(run):
            raise CastoffError(f"{run.id}: its job has no `notify`, so no message is due")
    if relay is not None:
        _relay(relay, [run.path for run in meant])
        return
    watcher = Watcher(os.environ, [run.path for run in meant], click.echo)
    with contextlib.nullcontext() if meant else alone(os.environ):
        watcher.watch()
    report("no run with `notify` is pending or running; `castoff top` shows all your runs")


def _relay(text: str, only: list[Path]) -> None:
    """Print what is due, for the machine that sends it; `text`: what became of earlier messages."""
    from castoff.launcher.notify import relay
    from castoff.launcher.notify.watching import Watcher

    state = msgspec.json.decode(text, type=relay.State)
    relay.record(state, socket.gethostname())

    def hand_over(message: Message, receiver: str, number: int) -> None:
        click.echo(relay.handed_over(message, receiver, number))

    watcher = Watcher(os.environ, only, report, hand_over=hand_over, leave=state.leave)
    click.echo(msgspec.json.encode(relay.Errand(left=watcher.look())).decode())
