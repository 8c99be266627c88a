"""survey(run): a run as its directory tells of it, before any scheduler is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.runs.records import Facts, Submission
from launcher.runs.run import STOP, Run, names_in
from launcher.schedulers.local.control import is_alive, took_newest
from launcher.schedulers.registry import queued

if TYPE_CHECKING:
    from launcher.status.survey import QueuedRun


class Scene(NamedTuple):
    """A run as its directory tells of it, before any scheduler is asked."""

    run: Run
    holds: bool
    """Whether its directory is there."""
    submission: Submission | None
    """None: castoff did not submit it."""
    plan: Facts
    alive: bool
    """Whether anything holds its lock."""
    stop_asked: bool
    attempts: dict[int, list[tuple[int, Path]]]
    """Of each member its attempts, with their folders."""
    queued: QueuedRun | None
    """None: neither Slurm nor PBS knows of it."""
    held: bool
    """Whether its lock is the caller's."""


def survey(run: Run, *, held: bool = False) -> Scene:
    """Read a run's directory. `held`: its lock is the caller's, who sends nothing yet.

    Raises:
        CastoffError: something in it cannot be read.
    """
    # Before the records: what is written between the two looks then counts.
    alive = not held and is_alive(run)
    holds = names_in(run.path)
    submission, plan = run.submission(), run.facts()
    attempts: dict[int, list[tuple[int, Path]]] = {}
    for member, attempt, folder in run.attempts():
        attempts.setdefault(member, []).append((attempt, folder))
    scene = Scene(run, bool(holds), submission, plan, alive, STOP in holds, attempts, None, held)
    # A launch in an allocation is castoff's own affair, as what the local scheduler runs.
    return scene if queued(plan.scheduler) is None or took_newest(run) else _queued(scene)


def _queued(scene: Scene) -> Scene:
    from launcher.status.survey import QueuedRun, read_attempt

    attempts = {
        member: [read_attempt(number, folder, names_in(folder)) for number, folder in found]
        for member, found in scene.attempts.items()
    }
    queued = QueuedRun(scene.run, scene.submission, scene.plan, attempts, being_sent=scene.alive)
    return scene._replace(queued=queued)
