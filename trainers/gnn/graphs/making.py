"""The records of graphs, made of stores or by the generator, by one process or several."""

from __future__ import annotations

import functools
import logging
import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch_geometric.data import Data

from trainers.core.contract import in_words
from trainers.core.fields import ConfigError
from trainers.core.helpers import mapped
from trainers.core.paths import expanded
from trainers.core.pyobject import resolved
from trainers.gnn.graphs.built_in import BuiltIn
from trainers.gnn.graphs.records import encoded
from trainers.gnn.graphs.settings import Files, Generated, dtype_name
from trainers.gnn.graphs.sources import digest, state_of, text_of, texts_of
from trainers.gnn.graphs.stores import Store, opened

logger = logging.getLogger(__name__)

_MOST_TOLD = 5
"""Samples that cannot be made, until the others are not tried."""

_ADVICE = "set data.n_processes or data.chunksize lower, where memory is short"


class Run(NamedTuple):
    """Samples that follow each other in a store, or among those that are generated."""

    store: int
    first: int
    last: int
    """One more than the last."""


class Making(ABC):
    """How samples become records; it can be pickled."""

    @abstractmethod
    def fingerprint(self) -> str:
        """A word that only the same records have."""

    @abstractmethod
    def counts(self) -> list[int]:
        """How many samples each store has.

        Raises:
            ConfigError: with all that a store lacks.
        """

    @abstractmethod
    def made(self, run: Run) -> Iterator[bytes | None]:
        """The records of a run; None: the sample is not wanted.

        Raises:
            ConfigError: a sample cannot be made, and which one.
        """


class FromCausets(Making):
    """Generated causal sets."""

    def __init__(self, settings: Generated, seed: int):
        self._causets = settings.causets
        self._seed = seed

    def fingerprint(self) -> str:
        """Of settings, seed, and the generator itself."""
        import trainers.gnn.causets.samples  # noqa: F401  # so that its text is known

        return digest(
            {"causets": self._causets, "seed": self._seed, "text": texts_of("trainers.gnn.causets")}
        )

    def counts(self) -> list[int]:
        """One row of them."""
        return [int(self._causets.number)]

    def made(self, run: Run) -> Iterator[bytes | None]:
        """The records of some."""
        from trainers.gnn.causets.samples import sample

        for index in range(run.first, run.last):
            yield encoded(sample(self._causets, self._seed, index))


class FromFiles(Making):
    """Samples of stores, as a reader, a filter and a transform make graphs of them."""

    def __init__(self, settings: Files):
        self._settings = settings
        self._paths = [
            expanded(file, f"data.files[{number}]").absolute() for number, file in enumerate(settings.files)
        ]
        self._filter: Callable[[Any], Any] | None = resolved(settings.pre_filter)
        self._transform: Callable[[Any], Any] | None = resolved(settings.pre_transform)
        self._reader: Callable[..., Any] | None = resolved(settings.reader)
        self._types = [getattr(torch, dtype_name(each)) for each in (settings.float_type, settings.int_type)]

    def fingerprint(self) -> str:
        """Of the files as they are now, the settings, and the text of all that makes a graph of a sample."""
        settings = self._settings
        names = ("validate_data", "targets", "features", "graph_features", "edges", "adjacency", "sizes")
        plain = {name: getattr(settings, name) for name in (*names, "transposed", "missing")}
        own = (
            {} if self._reader else {name: texts_of(f"trainers.gnn.{name}") for name in ("causets", "graphs")}
        )
        return digest(
            {
                **plain,
                **own,
                "files": [state_of(path) for path in self._paths],
                "types": [dtype_name(each) for each in self._types],
                "reader": text_of(self._reader),
                "pre_filter": text_of(self._filter),
                "pre_transform": text_of(self._transform),
            }
        )

    def counts(self) -> list[int]:
        """Of each store; the built-in reader's arrays are looked for, too."""
        counts, problems = [], []
        for path in self._paths:
            try:
                with opened(path) as store:
                    counts.append(len(store))
                    if self._reader is None and len(store):
                        problems += [f"{path}: {each}" for each in BuiltIn(self._settings).problems(store)]
            except ConfigError as error:
                problems += [f"{error.origin}: {each}" for each in error.problems]
        if problems:
            raise ConfigError(problems, "data.files")
        return counts

    def made(self, run: Run) -> Iterator[bytes | None]:
        """The records of a run of samples."""
        with opened(self._paths[run.store]) as store:
            read = self._read(store)
            for index in range(run.first, run.last):
                with _told(store.path, index):
                    record = self._record(read, index)
                yield record

    def _read(self, store: Store) -> Callable[[int], Any]:
        if self._reader is None:
            return functools.partial(BuiltIn(self._settings).read, store)
        reader, (float_type, int_type) = self._reader, self._types
        return lambda index: reader(store.root, index, float_type, int_type, self._settings.validate_data)

    def _record(self, read: Callable[[int], Any], index: int) -> bytes | None:
        with _stage("reader" if self._reader else "files"):
            sample = read(index)
        if self._filter is not None:
            with _stage("pre_filter"):
                if not self._filter(sample):
                    return None
        if self._transform is not None:
            with _stage("pre_transform"):
                sample = self._transform(sample)
        last = "pre_transform" if self._transform else "reader"
        if not isinstance(sample, Data):
            raise ConfigError([f"data.{last} gave {in_words(sample)}, but must give a torch_geometric Data"])
        if self._settings.validate_data:
            problems = wrong(sample)
            if problems:
                raise ConfigError([f"data.{last} gave a graph in which {each}" for each in problems])
        try:
            return encoded(sample)
        except TypeError as error:
            raise ConfigError([f"data.{last} gave a graph that cannot be written: {error}"]) from error


def wrong(data: Data) -> list[str]:
    """What is wrong with a graph, in words."""
    problems = []
    try:
        data.validate(raise_on_error=True)
    except ValueError as error:
        problems.append(" ".join(str(error).split()))
    for name, value in data.to_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.isfinite().all():
            lost = int((~value.isfinite()).sum())
            problems.append(f"{name} has NaN or infinity in {lost} of {value.numel()} places")
    edges = data.edge_index
    if isinstance(edges, torch.Tensor) and edges.numel():
        if edges.dtype not in (torch.int64, torch.int32, torch.int16):
            problems.append(f"edge_index is of {edges.dtype}, and no whole numbers")
        elif not problems and int(edges.max()) >= (data.num_nodes or 0):
            problems.append(f"edge_index names node {int(edges.max())}, but there are {data.num_nodes}")
    return problems


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """What goes wrong in a field's code is told with the place in it."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # whatever it is, the sample is to be named
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}, line {at.lineno}"
        text = " ".join(str(error).split())
        raise ConfigError([f"data.{name}: {type(error).__name__}: {text} ({where})"]) from error


@contextmanager
def _told(path: Path, index: int) -> Iterator[None]:
    """Errors get the sample's number in front."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError([f"sample {index}: {each}" for each in error.problems], str(path)) from error


# --- One process or several -----------------------------------------------------------------------


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
        work = functools.partial(_of_pickled, cloudpickle.dumps(making))
        answers = mapped(work, runs, processes, _ADVICE)
    with ExitStack() as stack:
        if hasattr(answers, "close"):
            stack.callback(answers.close)
        for found, problem in answers:
            if problem is not None:
                problems.append(problem)
                if len(problems) == _MOST_TOLD:
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
    for each in answers:
        if each.problem is not None:
            return Answer([], each.problem)
        found += each.records
    return Answer(found, None)
