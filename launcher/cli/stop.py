"""castoff stop: ask runs to save their state and end."""

from __future__ import annotations

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import ending_words, json_option, print_json, report
from castoff.launcher.cli.run_options import run_options, runs_meant
from castoff.launcher.errors import StillRunning
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.registry import is_own
from castoff.launcher.status.watch import poll, statuses
from castoff.launcher.submission.cancel import stop


@click.command("stop", epilog=examples("castoff stop train --wait", "castoff stop --name 'sweep*'"))
@run_options(only_active=True)
@click.option("--wait", "until_over", is_flag=True, help="Return when the runs are over.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    help="Wait at most this many seconds (exit code 124); implies --wait.",
)
@json_option
def command(
    runs: tuple[str, ...], names: tuple[str, ...], until_over: bool, timeout: float | None, as_json: bool
) -> int:
    """Ask runs to save their state and end; `castoff resubmit` resumes them.

    castoff creates the file that CASTOFF_STOP_FILE names; a program that does not look for it keeps running.
    Members that have not started do not start, and nothing is requeued.
    """
    selected = runs_meant(runs, names)
    asked = stop(selected)
    states: list[RunStatus] = []
    if until_over or timeout is not None:
        for states in poll(selected, timeout):  # noqa: B007 - only the last states count
            pass
    else:
        states = statuses(selected)
    for run in states:
        was_requested = run.directory in asked
        if as_json:
            print_json({"id": run.id, "asked": was_requested, "state": run.state, "ending": run.ending})
        else:
            words = f"asked to stop; {ending_words(run)}" if was_requested else ending_words(run, " already")
            click.echo(f"{run.id}: {words}")
    going = [run.id for run in states if run.state in ("pending", "running")]
    queued = [run.id for run in states if run.state == "pending" and not is_own(run.scheduler)]
    if going and timeout is not None:
        raise StillRunning(
            f"{', '.join(going)}: not over after {timeout:g} s; its program may not look for "
            "CASTOFF_STOP_FILE; `castoff cancel` ends it"
        )
    if queued and not as_json:
        ids = " ".join(queued)
        report(f"pending jobs end when they start; `castoff cancel {ids}` takes them out of the queue now")
    if len(going) > len(queued) and not as_json:
        report("a program that does not check CASTOFF_STOP_FILE keeps running; `castoff cancel` ends it")
    return 0
