"""Which commands submit a run, or start it again: one, or one for each part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from launcher.runs.plan import Plan
from launcher.schedulers.directives import own_dependency
from launcher.schedulers.pbs import submit as pbs
from launcher.schedulers.slurm import submit as slurm
from launcher.schedulers.submission import Order, Part, Submission


class Sending(NamedTuple):
    """One command that starts members of a run."""

    part: Part | None
    """None: not an array."""
    order: Callable[[str | None], Order]
    """The command; it may have to wait for the job before it, whose id this is given."""
    link: int | None = None
    """Which job of a chain it is; None: of none."""


class Restart(NamedTuple):
    """What is known of a run that starts again."""

    script: str
    """Its head."""
    run_dir: str
    begin: Mapping[int, int]
    """The members that start, and with which attempt."""
    submitted: bool
    """Whether castoff made the run directory; else a script that stood alone did."""
    dependency: str | None
    """In the scheduler's words; empty: none; None: what the script's own directive says."""
    chain: int = 0
    """How many jobs go on one after the other, submitted beforehand; 0: no chain."""


def first_sendings(decided: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
    """What submits a plan to Slurm or PBS.

    `largest`: how many members an array of Slurm's may have; None: any number.
    """
    if decided.scheduler == "pbs":
        return _first_on_pbs(decided, run_dir, dependency)
    count = decided.array_count
    whole = None if count is None else Part(range(count))
    if count is None or largest is None or count <= largest:
        return [Sending(whole, partial(_slurm_order, decided, run_dir, dependency, None))]
    return [
        Sending(part, partial(_slurm_order, decided, run_dir, dependency, part))
        for part in slurm.parts(range(count), largest)
    ]


def _slurm_order(
    decided: Plan, run_dir: str, dependency: str | None, part: Part | None, before: str | None
) -> Order:
    if before and decided.array_at_most:  # Slurm counts those that run at once for each job alone
        if dependency is None:  # what stands on the command line replaces it
            dependency = own_dependency(decided.directives)
        dependency = ",".join(filter(None, [dependency, f"afterany:{before}"]))
    submission = Submission(decided, run_dir, dependency, part)
    return Order(submission.environment, slurm.submit_command(submission))


def _first_on_pbs(decided: Plan, run_dir: str, dependency: str | None) -> list[Sending]:
    count = decided.array_count or 1
    if decided.requeue_how == "chain":
        links = range(1 + decided.requeue_max)
        return [
            Sending(None, partial(_pbs_order, decided, run_dir, dependency, link), link) for link in links
        ]
    whole = Part(range(count)) if count > 1 else None
    return [Sending(whole, partial(_pbs_order, decided, run_dir, dependency, None))]


def _pbs_order(
    decided: Plan, run_dir: str, dependency: str | None, link: int | None, before: str | None
) -> Order:
    words = pbs.after_failure(before) if before else dependency
    submission = Submission(decided, run_dir, words, link=link)
    return Order(submission.environment, pbs.submit_command(submission))


def sendings_again(scheduler: str, restart: Restart, largest: int | None) -> list[Sending]:
    """What starts members again on Slurm or PBS: one command for those of each attempt, or several."""
    if scheduler == "pbs":
        return _again_on_pbs(restart)
    script, begin = restart.script, restart.begin
    is_array = slurm.is_array(script)
    found = []
    for attempt in sorted(set(begin.values())):
        members = (member for member in begin if begin[member] == attempt)
        for part in slurm.parts(members, largest or max(begin) + 1):
            again = slurm.Again(part, attempt, restart.submitted, restart.dependency)
            order = partial(slurm.resubmission, script, restart.run_dir, again)
            found.append(Sending(part if is_array else None, order))
    return found


def _again_on_pbs(restart: Restart) -> list[Sending]:
    if restart.chain:
        links = range(restart.chain)
        return [Sending(None, partial(_pbs_again, restart, [0], link), link) for link in links]
    is_array = pbs.is_array(restart.script)
    return [
        Sending(Part(members) if is_array else None, partial(_pbs_again, restart, members, None))
        for members in pbs.spans(restart.begin)
    ]


def _pbs_again(restart: Restart, members: list[int], link: int | None, before: str | None) -> Order:
    words = pbs.after_failure(before) if before and link else restart.dependency
    again = pbs.Again(members, restart.begin[members[0]], restart.submitted, words, link)
    return pbs.resubmission(restart.script, restart.run_dir, again)
