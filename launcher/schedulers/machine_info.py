"""What a scheduler says about its machine when it is asked, in words that belong to no scheduler."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from launcher.config.site import Site
from launcher.errors import CastoffError
from launcher.schedulers.command import SchedulerUnreachable, answer_of
from launcher.schedulers.registry import queued

_PATIENCE = 60.0
"""Seconds for each answer: a large machine has many nodes."""


class QueryFailed(CastoffError):
    """The scheduler is not here, or did not answer. As of diff, 2 is trouble and 1 a difference."""

    exit_code = 2


class Question(NamedTuple):
    """A command whose answer describes the machine."""

    about: str
    argv: list[str]
    optional: bool = False
    """Whether the machine may lack what is asked for, such as accounting."""


class QueueInfo(NamedTuple):
    """A queue, a partition or a QOS, at its outermost; None where the scheduler names no bound."""

    min_nodes: int | None = 1
    max_nodes: int | None = None
    min_walltime: int | None = None
    """Seconds."""
    max_walltime: int | None = None
    max_jobs: int | None = None
    """Queued and running jobs of one user, or of one project where that is less."""
    max_devices: int | None = None
    """Devices of a job."""
    offered: bool = True
    """Whether users are meant to name it: not where it is hidden, shut or filled by a routing queue."""


class MachineInfo(NamedTuple):
    """Everything that a scheduler reports about its machine."""

    queues: Mapping[str, QueueInfo] = {}
    qos: Mapping[str, QueueInfo] | None = None
    """None where there is no accounting, or no such thing."""
    default_queue: str | None = None
    array_count: int | None = None
    """Members of the largest array."""
    nodes: Sequence[tuple[int, int]] = ()
    """The kinds of nodes: cores and devices of each."""
    counts_threads: bool = False
    """Whether those cores may be hardware threads, and those devices several of ours."""
    unanswered: tuple[tuple[str, str], ...] = ()
    """What was asked about and not answered, each with why."""


def outermost(choose: Callable[..., int], bounds: Iterable[int | None]) -> int | None:
    """Of several bounds the one that takes most, by min or max; None: there is none."""
    held = list(bounds)
    return None if None in held else choose(held, default=None)


def ask(site: Site, environ: Mapping[str, str] = os.environ) -> MachineInfo:
    """What the scheduler of this machine says, which is taken for the site's.

    Raises:
        CannotAsk: its programs are not here, or it does not answer; with its own words.
    """
    if queued(site.scheduler) is None:
        raise QueryFailed(f"site {site.name}: has no scheduler that could be asked; castoff itself is it")
    machine = import_module(f"launcher.schedulers.{site.scheduler}.machine")
    questions: Sequence[Question] = machine.QUESTIONS
    answers: dict[str, str] = {}
    unanswered: list[tuple[str, str]] = []
    for question in questions:
        try:
            answers[question.about] = answer_of(question.argv, _PATIENCE, environ)
        except SchedulerUnreachable as why:
            failure = f"`{shlex.join(question.argv)}`: {why}"
            if not question.optional:
                raise QueryFailed(f"site {site.name}: {failure}") from None
            unanswered.append((question.about, failure))
    try:
        info: MachineInfo = machine.parse(answers)
        return info._replace(unanswered=tuple(unanswered))
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise QueryFailed(
            f"site {site.name}: what {questions[0].argv[0]} and the others answer cannot be read: {error!r}"
        ) from error
