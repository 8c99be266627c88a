"""The records of all samples, made by this process or by several."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import cloudpickle
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.parallel_map import mapped
from castoff.trainers.gnn.graphs.making import Making, Run

_MOST_SHOWN = 5
"""Samples that cannot be made, until the others are not tried."""

_ADVICE = "set data.n_processes or data.chunksize lower, where memory is short"


def records(making: Making, processes: int, at_once: int) -> Iterator[bytes | None]:
    """The records of all samples, in order; None for those that are not wanted.

    `at_once`: how many samples a process takes at once, where there are several.

    Raises:
        ConfigError: some samples cannot be made; of many, the first few are named.
    """
    runs = _runs(making.counts(), at_once if processes > 1 else None)
    problems: list[str] = []
    if processes <= 1:
        answers: Iterable[Answer] = (each for run in runs for each in _singly(making, run))
    else:
        work = functools.partial(_of_pickled, _pickled(making))
        answers = mapped(work, runs, processes, _ADVICE)
    with ExitStack() as stack:
        if hasattr(answers, "close"):
            stack.callback(answers.close)
        for found, problem in answers:
            if problem is not None:
                problems.append(problem)
                if len(problems) == _MOST_SHOWN:
                    problems.append("and perhaps more: the samples after these were not tried")
                    break
            elif not problems:
                yield from found
    if problems:
        raise ConfigError(problems, "data")


class Answer(NamedTuple):
    """Records, or what kept the one after them from being made."""

    records: list[bytes | None]
    problem: str | None


def _runs(counts: list[int], at_once: int | None) -> Iterator[Run]:
    for store, count in enumerate(counts):
        step = at_once or max(count, 1)
        for first in range(0, count, step):
            yield Run(store, first, min(first + step, count))


def _singly(making: Making, run: Run) -> Iterator[Answer]:
    """A run, with nothing held back; what follows a sample that cannot be made is still tried."""
    first = run.first
    while first < run.last:
        try:
            for record in making.made(run._replace(first=first)):
                first += 1
                yield Answer([record], None)
        except ConfigError as error:
            first += 1
            yield Answer([], str(error))


def _pickled(making: Making) -> bytes:
    """With functions of a script or a notebook in it, which no other process could import.

    Raises:
        ConfigError: they hold what cannot be handed over.
    """
    try:
        content: bytes = cloudpickle.dumps(making)
    except Exception as error:  # whatever it is that a user's function holds
        raise ConfigError(
            [
                "data.n_processes: functions of data cannot be handed to other processes: "
                f"{type(error).__name__}: {error}; set n_processes: 1, or let them hold less"
            ]
        ) from error
    return content


def _of_pickled(content: bytes, run: Run) -> Answer:
    making = _unpickled(content)
    return _joined(_singly(making, run))


@functools.lru_cache(maxsize=1)
def _unpickled(content: bytes) -> Making:
    torch.set_num_threads(1)
    making: Making = pickle.loads(content)
    return making


def _joined(answers: Iterable[Answer]) -> Answer:
    """All records, unless there is a problem: the first one."""
    found: list[bytes | None] = []
    for answer in answers:
        if answer.problem is not None:
            return Answer([], answer.problem)
        found += answer.records
    return Answer(found, None)
