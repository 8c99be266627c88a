"""castoff stop."""

from __future__ import annotations

import click

from launcher.cli.output import StillGoing, ending_words, json_option, print_json, say
from launcher.cli.run_options import run_options, runs_meant
from launcher.runs.run import Run, ask_to_stop
from launcher.runs.states import RunStatus
from launcher.schedulers.local.control import other_host
from launcher.schedulers.registry import is_own
from launcher.status.watch import poll, statuses


@click.command("stop")
@run_options
@click.option("--wait", "until_over", is_flag=True, help="Return when they are over.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    help="Wait no longer than so many seconds (exit code 124); means --wait.",
)
@json_option
def command(
    runs: tuple[str, ...], names: tuple[str, ...], until_over: bool, timeout: float | None, as_json: bool
) -> int:
    """Ask runs to save their state and end; `castoff resubmit` resumes them.

    A program is asked by the file that CASTOFF_STOP_FILE names; one that does not look for it goes
    on. Members that wait do not begin, and nothing is requeued.
    """
    found = runs_meant(runs, names)
    over = {now.directory for run, now in zip(found, statuses(found), strict=True) if _is_over(run, now)}
    for run in found:
        if str(run.path) not in over:
            ask_to_stop(run)
    states: list[RunStatus] = []
    if until_over or timeout is not None:
        for states in poll(found, timeout):  # noqa: B007 - the last of them counts
            pass
    else:
        states = statuses(found)
    for now in states:
        asked = now.directory not in over
        if as_json:
            print_json({"id": now.id, "asked": asked, "state": now.state, "ending": now.ending})
        else:
            words = f"asked to stop; {ending_words(now)}" if asked else ending_words(now, " already")
            click.echo(f"{now.id}: {words}")
    going = [now.id for now in states if now.state in ("pending", "running")]
    queued = [now.id for now in states if now.state == "pending" and not is_own(now.scheduler)]
    if going and timeout is not None:
        raise StillGoing(
            f"{', '.join(going)}: not over after {timeout:g} s; its program may not look for "
            "CASTOFF_STOP_FILE; `castoff cancel` ends it"
        )
    if queued and not as_json:
        ids = " ".join(queued)
        say(f"what waits ends when it is started; `castoff cancel {ids}` takes it out of the queue now")
    if len(going) > len(queued) and not as_json:
        say("a program that does not check CASTOFF_STOP_FILE keeps running; `castoff cancel` ends it")
    return 0


def _is_over(run: Run, now: RunStatus) -> bool:
    """Whether nothing of it runs or can still begin; False if that cannot be known here."""
    if not is_own(now.scheduler):  # which was asked
        return now.state == "ended" and (run.submission() is not None or now.ending != "resume")
    if run.submission() is None:  # a script at work by hand may run anywhere
        return now.state == "ended" and all(member.ending != "resume" for member in now.members)
    return now.over and (now.state == "ended" or other_host(run) is None)
