"""castoff logs."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from launcher.cli.completion import complete_runs
from launcher.cli.output import has_colours, json_option, print_json, say
from launcher.errors import CastoffError
from launcher.launchers.commands import MERGING
from launcher.logs.failures import failed_rank
from launcher.logs.following import Follower
from launcher.logs.printing import print_logs
from launcher.logs.show import End, Json, Text, failure_facts
from launcher.logs.sources import Selection, rank_logs
from launcher.logs.tail import tail_start
from launcher.runs.index import Index
from launcher.runs.run import Run
from launcher.runs.states import AttemptStatus, MemberStatus, RunStatus, failure_words
from launcher.status.watch import AT_A_GLANCE, Asking, status

_NUMBER = click.IntRange(min=0)


@click.command("logs")
@click.argument("run", shell_complete=complete_runs)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run is over.")
@click.option("-n", "--tail", type=_NUMBER, metavar="N", help="The last N lines of each log alone.")
@click.option("--rank", "ranks", type=_NUMBER, multiple=True, help="Only this rank's log.")
@click.option("--member", "members", type=_NUMBER, multiple=True, help="Of an array; default: all.")
@click.option("--attempt", type=_NUMBER, help="Default: the newest; with -f all.")
@json_option
def command(
    run: str,
    follow: bool,
    tail: int | None,
    ranks: tuple[int, ...],
    members: tuple[int, ...],
    attempt: int | None,
    as_json: bool,
) -> int:
    """Print a run's logs: the first rank that failed comes first, then all ranks' lines.

    RUN is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory.
    --rank and --member may be given more than once. With -f, whatever is still to come is shown as it
    is written, and the exit code is the run's. With --json, where the logs are; with -f, each line.
    """
    found = Index.of(os.environ).find(run)
    selection = Selection(frozenset(members), attempt, frozenset(ranks), tail)
    _check_ranks(found, selection)
    if follow:
        return _follow(found, selection, as_json)
    chosen = _attempts(found, selection)
    if as_json:
        print_json(_places(found, chosen))
    else:
        _print(found, chosen, selection)
    return 0


def _follow(run: Run, selection: Selection, as_json: bool) -> int:
    """Follow a run to its end; its code, or that of what was selected."""
    members = _members(run, status(run, Asking(AT_A_GLANCE)), selection)
    show = Json() if as_json else _text(several=len(members) > 1, labels=len(selection.ranks) != 1)
    follower = Follower(run, selection, show, write=_write, say=say, pause=_pause)
    try:
        end = follower.follow()
    except KeyboardInterrupt:
        return 130
    _write(show.end(end))
    say(_last_word(end))
    return 1 if end.code is None else end.code


def _last_word(end: End) -> str:
    if end.failed is None:
        return f"{end.id}: {end.ending}" + (f": {end.reason}" if end.reason else "")
    log = f"; its log: {end.failed.log}" if end.failed.log is not None else ""
    return f"{end.id}: {end.ending}; {failure_words(end.failed.failure)}{log}"


def _members(run: Run, now: RunStatus, selection: Selection) -> list[MemberStatus]:
    """The members that are meant; an error where one of them is none of the run's."""
    known = [one.member for one in now.members]
    for member in sorted(selection.members - {*known}):
        raise CastoffError(f"{run.id}: no member {member}; members are 0 to {max(known)}")
    return [one for one in now.members if selection.has_member(one.member)]


def _check_ranks(run: Run, selection: Selection) -> None:
    """Say that a rank may have no log of its own; an error where there is no such rank."""
    plan = run.facts()
    count = plan.ranks
    if count is not None and (wrong := sorted(rank for rank in selection.ranks if rank >= count)):
        raise CastoffError(f"{run.id}: no rank {wrong[0]}; ranks are 0 to {count - 1}")
    if selection.ranks and plan.launcher not in MERGING and not plan.per_rank_logs:
        say(f"{run.id}: its ranks share one log per node; only the rank that fails first has its own")


def _attempts(run: Run, selection: Selection) -> list[tuple[int, AttemptStatus]]:
    """The attempts that are meant, each with its member: of every member the one named, or the newest."""
    now = status(run, Asking(AT_A_GLANCE))
    chosen, problems = [], []
    for member in _members(run, now, selection):
        try:
            chosen.append((member.member, _attempt(run, now, member, selection.attempt)))
        except CastoffError as error:
            problems.append(error)
    if problems and (selection.members or not chosen):
        raise problems[0]
    return chosen


def _attempt(run: Run, now: RunStatus, member: MemberStatus, attempt: int | None) -> AttemptStatus:
    number = member.member
    known = {one.attempt: one for one in member.attempts}
    if not known:
        because = f": {now.reason}" if now.reason else f", it is {member.state}"
        raise CastoffError(f"{run.id}: member {number} has not begun, so it has no logs{because}")
    chosen = known.get(max(known) if attempt is None else attempt)
    if chosen is None:
        listed = ", ".join(map(str, known))
        raise CastoffError(f"{run.id}: member {number} has no attempt {attempt}; there is {listed}")
    if chosen.ended and not run.script_log(number).exists() and not Path(chosen.logs).exists():
        because = f": {chosen.reason}" if chosen.reason else ""
        raise CastoffError(f"{run.id}: {chosen.ending} before it began, so it has no logs{because}")
    return chosen


def _places(run: Run, attempts: list[tuple[int, AttemptStatus]]) -> dict[str, Any]:
    """Where the logs of attempts are, and what they say of failures."""
    report = []
    for member, attempt in attempts:
        logs = rank_logs(run, member, attempt.attempt)
        failed = failed_rank(run, member, attempt)
        report.append(
            {
                "member": member,
                "attempt": attempt.attempt,
                "state": attempt.state,
                "ending": attempt.ending,
                "script": str(run.script_log(member)),
                "ranks": [str(path) for source, path in logs if source.rank is not None],
                "nodes": [str(path) for source, path in logs if source.node is not None],
                "failure": None if failed is None else failure_facts(failed, failed.excerpt()),
            }
        )
    return {"id": run.id, "attempts": report}


def _print(run: Run, attempts: list[tuple[int, AttemptStatus]], selection: Selection) -> None:
    for rank in sorted(selection.ranks):
        if not any(rank_logs(run, member, one.attempt, [rank]) for member, one in attempts):
            log = f"{attempts[0][1].logs}/rank-{rank:05d}.log"
            raise CastoffError(f"{log}: no such log; without --rank all existing output is shown")
    alone = len(attempts) == len(selection.ranks) == 1
    if alone and not sys.stdout.isatty():
        ((member, one),) = attempts
        ((_, path),) = rank_logs(run, member, one.attempt, selection.ranks)
        _copy(path, selection.tail)
    else:
        print_logs(run, attempts, selection, _text(several=len(attempts) > 1, labels=not alone), _write)


def _copy(path: Path, tail: int | None) -> None:
    """A log's bytes as they are."""
    sys.stdout.flush()
    with path.open("rb") as file:
        file.seek(0 if tail is None else tail_start(path, tail))
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _text(*, several: bool, labels: bool) -> Text:
    return Text(several=several, terminal=sys.stdout.isatty(), colours=has_colours(), labels=labels)


def _write(data: bytes) -> None:
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _pause(seconds: float) -> None:
    """Let seconds pass, but notice at once when nobody reads standard output any more."""
    poller = select.poll()
    with contextlib.suppress(OSError, ValueError):  # it is no file
        poller.register(sys.stdout.fileno(), 0)
    if any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(1000 * seconds)):
        raise BrokenPipeError
