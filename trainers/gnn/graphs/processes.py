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
"""Number of samples that cannot be made after which the others are not tried."""

_ADVICE = "if memory is short, set data.n_processes or data.chunksize lower"


def records(making: Making, processes: int, at_once: int) -> Iterator[bytes | None]:
    """Yield the records of all samples, in order; None for samples that the filter drops.

    `at_once`: how many samples a process takes at once, if there are several processes.

    Raises:
        ConfigError: some samples cannot be made; the first few are named.
    """
    runs = _runs(making.counts(), at_once if processes > 1 else None)
    problems: list[str] = []
    if processes <= 1:
        answers: Iterable[Answer] = (answer for run in runs for answer in _singly(making, run))
    else:
        work = functools.partial(_of_pickled, _pickled(making))
        answers = mapped(work, runs, processes, _ADVICE)
    with ExitStack() as stack:
        if hasattr(answers, "close"):
            stack.callback(answers.close)
        for finished, problem in answers:
            if problem is not None:
                problems.append(problem)
                if len(problems) == _MOST_SHOWN:
                    problems.append("and perhaps more: the samples after these were not tried")
                    break
            elif not problems:
                yield from finished
    if problems:
        raise ConfigError(problems, "data")


class Answer(NamedTuple):
    """The records that a process made, and why the next one could not be made, if so."""

    records: list[bytes | None]
    problem: str | None


def _runs(counts: list[int], at_once: int | None) -> Iterator[Run]:
    for store, count in enumerate(counts):
        step = at_once or max(count, 1)
        for first in range(0, count, step):
            yield Run(store, first, min(first + step, count))


def _singly(making: Making, run: Run) -> Iterator[Answer]:
    """Yield a run's records one by one; after a sample that cannot be made, the next ones are still tried."""
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
    """Pickle with cloudpickle, which includes functions of scripts and notebooks that others cannot import.

    Raises:
        ConfigError: they contain something that cannot be pickled.
    """
    try:
        content: bytes = cloudpickle.dumps(making)
    except Exception as error:  # a user's function may contain anything
        raise ConfigError(
            [
                "data.n_processes: functions in the section data cannot be passed to other processes: "
                f"{type(error).__name__}: {error}; set n_processes: 1, or remove what cannot be pickled "
                "from them"
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
    """All records in one answer, or the first problem."""
    all_records: list[bytes | None] = []
    for answer in answers:
        if answer.problem is not None:
            return Answer([], answer.problem)
        all_records += answer.records
    return Answer(all_records, None)
