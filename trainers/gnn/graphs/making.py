"""How samples become graphs: of stores by a reader, or by the generator."""

from __future__ import annotations

import functools
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.configuration.pyobject import resolved
from castoff.trainers.gnn.graphs.built_in import BuiltIn
from castoff.trainers.gnn.graphs.records import encoded
from castoff.trainers.gnn.graphs.settings import Files, Generated, dtype_name
from castoff.trainers.gnn.graphs.sources import digest, state_of, text_of, texts_of
from castoff.trainers.gnn.graphs.stores import Store, opened
from castoff.trainers.task.contract import in_words


class Run(NamedTuple):
    """Samples that follow each other in a store, or among those that are generated."""

    store: int
    first: int
    last: int
    """One more than the last."""


class Making(ABC):
    """How samples become records; cloudpickle can hand it to other processes.

    What gives a sample is the heirs' matter; filter, transform and validation are the same for all.
    """

    source: str
    """The field whose code gives the samples."""

    def __init__(self, settings: Files | Generated):
        self._filter: Callable[[Any], Any] | None = resolved(settings.pre_filter)
        self._transform: Callable[[Any], Any] | None = resolved(settings.pre_transform)
        self._validate = settings.validate_data

    def fingerprint(self) -> str:
        """A word that only the same records have."""
        return digest(
            {
                "source": self._source_fingerprint(),
                "pre_filter": text_of(self._filter),
                "pre_transform": text_of(self._transform),
                "validate_data": self._validate,
            }
        )

    @abstractmethod
    def counts(self) -> list[int]:
        """How many samples each store has.

        Raises:
            ConfigError: with all that a store lacks.
        """

    @abstractmethod
    def _source_fingerprint(self) -> str:
        """A word that only the same samples have."""

    @abstractmethod
    @contextmanager
    def _opened(self, store: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
        """The name of a store, and what gives its samples."""
        yield "", lambda index: None

    def made(self, run: Run) -> Iterator[bytes | None]:
        """The records of a run; None: the sample is not wanted.

        Raises:
            ConfigError: a sample cannot be made, and which one.
        """
        with self._opened(run.store) as (name, read):
            for index in range(run.first, run.last):
                try:
                    record = self._record(read, index)
                except ConfigError as error:
                    raise ConfigError(
                        [f"sample {index}: {problem}" for problem in error.problems], name
                    ) from error
                yield record

    def _record(self, read: Callable[[int], Any], index: int) -> bytes | None:
        with _stage(self.source):
            sample = read(index)
        if self._filter is not None:
            with _stage("pre_filter"):
                if not self._filter(sample):
                    return None
        if self._transform is not None:
            with _stage("pre_transform"):
                sample = self._transform(sample)
        last = "pre_transform" if self._transform else self.source
        if not isinstance(sample, Data):
            raise ConfigError([f"data.{last} gave {in_words(sample)}, but must give a torch_geometric Data"])
        with _stage(last):
            problems = wrong(sample) if self._validate else []
        if problems:
            raise ConfigError([f"data.{last} gave a graph in which {problem}" for problem in problems])
        try:
            return encoded(sample)
        except TypeError as error:
            raise ConfigError([f"data.{last} gave a graph that cannot be written: {error}"]) from error


class FromCausets(Making):
    """Generated causal sets."""

    source = "causets"

    def __init__(self, settings: Generated, seed: int):
        super().__init__(settings)
        self._causets = settings.causets
        self._seed = seed if settings.causets.seed is None else settings.causets.seed

    def _source_fingerprint(self) -> str:
        """A fingerprint of settings, seed, and the generator itself."""
        import castoff.trainers.gnn.causets.samples  # noqa: F401  # so that its text is known

        return digest(
            {"causets": self._causets, "seed": self._seed, "text": texts_of("castoff.trainers.gnn.causets")}
        )

    def counts(self) -> list[int]:
        """One row of them."""
        return [int(self._causets.number)]

    @contextmanager
    def _opened(self, store: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
        from castoff.trainers.gnn.causets.samples import sample

        yield "data.causets", functools.partial(sample, self._causets, self._seed)


class FromFiles(Making):
    """Graphs made from stored samples by a reader, a filter and a transform."""

    def __init__(self, settings: Files):
        super().__init__(settings)
        self._settings = settings
        self._paths = [
            expanded(file, f"data.files[{number}]").absolute() for number, file in enumerate(settings.files)
        ]
        self._reader: Callable[..., Any] | None = resolved(settings.reader)
        self._types = [getattr(torch, dtype_name(each)) for each in (settings.float_type, settings.int_type)]
        self.source = "reader" if self._reader else "files"

    def _source_fingerprint(self) -> str:
        """A fingerprint of the files as they are now, the settings, and the reader's source code."""
        settings = self._settings
        names = ("targets", "features", "graph_features", "edges", "adjacency", "sizes", "transposed")
        rooms = () if self._reader else ("causets", "graphs")
        own = [texts_of(f"castoff.trainers.gnn.{room}") for room in rooms]
        return digest(
            {
                **{name: getattr(settings, name) for name in (*names, "missing")},
                "own": own,
                "files": [state_of(path) for path in self._paths],
                "types": [dtype_name(each) for each in self._types],
                "reader": text_of(self._reader),
            }
        )

    def counts(self) -> list[int]:
        """The number of samples in each store; the built-in reader's arrays must be there, too."""
        counts, problems = [], []
        for path in self._paths:
            try:
                with opened(path) as store:
                    counts.append(len(store))
                    if self._reader is None and len(store):
                        problems += [f"{path}: {each}" for each in BuiltIn(self._settings).problems(store)]
            except ConfigError as error:
                problems += [f"{error.origin}: {problem}" for problem in error.problems]
        if problems:
            raise ConfigError(problems, "data.files")
        return counts

    @contextmanager
    def _opened(self, store: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
        with opened(self._paths[store]) as found:
            yield str(found.path), self._reading(found)

    def _reading(self, store: Store) -> Callable[[int], Any]:
        if self._reader is None:
            return functools.partial(BuiltIn(self._settings).read, store)
        reader, (float_type, int_type) = self._reader, self._types
        return lambda index: reader(store.root, index, float_type, int_type, self._validate)


def wrong(data: Data) -> list[str]:
    """What is wrong with a graph, in words."""
    problems = []
    try:
        data.validate(raise_on_error=True)
    except ValueError as error:
        problems.append(" ".join(str(error).split()))
    for name, value in data.to_dict().items():
        dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
        if dense and value.is_floating_point() and not value.isfinite().all():
            lost = int((~value.isfinite()).sum())
            problems.append(f"{name} has NaN or infinity in {lost} of {value.numel()} places")
    edges = data.edge_index
    if isinstance(edges, torch.Tensor) and edges.dtype not in (torch.int64, torch.int32, torch.int16):
        problems.append(f"edge_index is of {edges.dtype}, and no whole numbers")
    return problems


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Report what goes wrong in a field's code with the place in it."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # whatever it is, the sample is to be named
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}, line {at.lineno}"
        text = " ".join(str(error).split())
        raise ConfigError([f"data.{name}: {type(error).__name__}: {text} ({where})"]) from error
