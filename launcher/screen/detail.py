"""Reads all that the screen shows of one run from its directory."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.errors import CastoffError
from castoff.launcher.history.attempt_use import AttemptUse, with_advice
from castoff.launcher.history.attempts import HostRanks, Phase, hosts, phases, waiting
from castoff.launcher.history.progress import Progress
from castoff.launcher.history.use import use_of
from castoff.launcher.launchers.local.streams import for_terminal
from castoff.launcher.logs.failures import failed_rank
from castoff.launcher.logs.silence import Silences
from castoff.launcher.logs.sources import READ, rank_logs
from castoff.launcher.logs.tail import Tail, tail_start
from castoff.launcher.runs.parameters import parameters_of
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import FAILED, AttemptStatus, MemberStatus, RunStatus, failure_words
from castoff.launcher.status.script_output import script_output

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")

_LAST = 40
"""Number of lines that are read at the end of a log."""


class Excerpt(NamedTuple):
    """The last lines of a log."""

    title: str
    """A title that says where the lines are from, as in `the end of rank 0's log`."""
    lines: Sequence[str] = ()


class Detail(NamedTuple):
    """A run, and one of its members."""

    status: RunStatus
    member: MemberStatus
    progress: Progress
    phases: Sequence[Phase] = ()
    """The phases of the member's newest attempt."""
    hosts: Sequence[HostRanks] = ()
    excerpt: Excerpt = Excerpt("")
    parameters: str = ""
    """The member's parameters in words."""
    silent_since: float | None = None
    """When the ranks of the member's newest attempt became silent, if they are."""
    use: AttemptUse | None = None
    """What the member's newest attempt uses."""
    trouble: str | None = None
    """Why some of the files could not be read."""

    @property
    def attempt(self) -> AttemptStatus | None:
        """The member's newest attempt."""
        return self.member.attempts[-1] if self.member.attempts else None


def detail_of(
    now: RunStatus,
    member: int | None,
    progress: Callable[[str, float, int], Progress],
    silences: Silences,
) -> Detail:
    """Read the details of a run's member; None: the most interesting one.

    `progress`: computes a member's progress from its reports since a time; `silences`: what is known already.
    """
    chosen = chosen_member(now, member)
    try:
        run = RunDirectory(Path(now.directory))
    except CastoffError as error:  # other users can write to it now
        return Detail(now, chosen, Progress(), trouble=str(error))
    attempt = chosen.attempts[-1] if chosen.attempts else None
    try:
        parameters = parameters_of(run).words(chosen.member)
    except CastoffError as error:
        return Detail(now, chosen, Progress(), trouble=str(error))
    if attempt is None:
        queued = waiting(run.submission(), chosen)
        return Detail(now, chosen, Progress(), [queued] if queued else [], parameters=parameters)
    progressed = progress(now.directory, attempt.started or 0.0, chosen.member)
    silent = silences.since(attempt, time.time())
    detail = Detail(now, chosen, progressed, parameters=parameters, silent_since=silent)
    try:
        use, waits = use_of(run, chosen.member, attempt.attempt), progressed.data_wait
        return detail._replace(
            use=with_advice(use, run.facts(), waits) if use else None,
            phases=phases(run, run.submission(), chosen, attempt),
            hosts=hosts(run, chosen.member, attempt.attempt),
            excerpt=_excerpt(run, chosen.member, attempt),
        )
    except (CastoffError, OSError) as error:
        return detail._replace(trouble=str(error))


def chosen_member(now: RunStatus, number: int | None) -> MemberStatus:
    """The member with this number; else the first that failed, the first that is running, or the first."""
    tests: list[Callable[[MemberStatus], bool]] = [
        lambda one: one.member == number,
        lambda one: one.ending in FAILED,
        lambda one: one.state == "running",
    ]
    members = (next(filter(test, now.members), None) for test in tests)
    return next(filter(None, members), now.members[0])


def _excerpt(run: RunDirectory, member: int, attempt: AttemptStatus) -> Excerpt:
    """The lines that show why a rank or setup failed; else the end of rank 0's log."""
    if attempt.failure is not None and (failed := failed_rank(run, member, attempt)):
        return Excerpt(failure_words(attempt.failure), _texts(failed.excerpt()))
    if printed := script_output(run, member, attempt):
        of_setup = "setup" if (attempt.reason or "").startswith("setup ") else "the launcher"
        return Excerpt(f"what {of_setup} printed", printed)
    logs = rank_logs(run, member, attempt.attempt, [0]) or rank_logs(run, member, attempt.attempt)
    if logs:
        source, path = logs[0]
        whose = f"node {source.node}" if source.rank is None else f"rank {source.rank}"
        return Excerpt(f"the end of {whose}'s log", _end_of(path))
    return Excerpt("the end of the script's log", _end_of(run.script_log(member)))


def _end_of(path: Path) -> list[str]:
    data = Tail(path, tail_start(path, _LAST)).read(READ)
    return _texts([line.rstrip(b"\r").rpartition(b"\r")[2] for line in data.split(b"\n")])[-_LAST:]


def _texts(lines: Sequence[bytes]) -> list[str]:
    """Lines without colours, control sequences and empty lines."""
    harmless = (for_terminal(line).decode(errors="replace") for line in lines)
    plain = (_COLOUR.sub("", line).expandtabs() for line in harmless)
    return [line for line in plain if line.strip()]
