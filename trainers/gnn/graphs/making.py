"""How samples become graphs: read from stores, or generated."""

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
    """Consecutive samples of a store, or of the generated sets."""

    store: int
    first: int
    last: int
    """The index after the last sample."""


class Making(ABC):
    """Makes records of samples; cloudpickle can pass it to other processes.

    Subclasses supply the samples; filter, transform and validation are the same for all.
    """

    source: str
    """The configuration field that names the code from which the samples come."""

    def __init__(self, settings: Files | Generated):
        self._filter: Callable[[Any], Any] | None = resolved(settings.pre_filter)
        self._transform: Callable[[Any], Any] | None = resolved(settings.pre_transform)
        self._validate = settings.validate_data

    def fingerprint(self) -> str:
        """A digest of everything that the records depend on."""
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
        """The number of samples in each store.

        Raises:
            ConfigError: lists all that the stores lack.
        """

    @abstractmethod
    def _source_fingerprint(self) -> str:
        """A digest of everything that the samples depend on."""

    @abstractmethod
    @contextmanager
    def _opened(self, store: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
        """The name of a store, and a function that returns a sample by its index."""
        yield "", lambda index: None

    def made(self, run: Run) -> Iterator[bytes | None]:
        """Yield the records of a run; None: the filter drops the sample.

        Raises:
            ConfigError: a sample cannot be made; the message names it.
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
            raise ConfigError(
                [f"data.{last} returned {in_words(sample)}, but must return a torch_geometric Data"]
            )
        with _stage(last):
            problems = wrong(sample) if self._validate else []
        if problems:
            raise ConfigError([f"data.{last} returned a graph in which {problem}" for problem in problems])
        try:
            return encoded(sample)
        except TypeError as error:
            raise ConfigError([f"data.{last} returned a graph that cannot be written: {error}"]) from error


class FromCausets(Making):
    """Makes graphs of generated causal sets."""

    source = "causets"

    def __init__(self, settings: Generated, seed: int):
        super().__init__(settings)
        self._causets = settings.causets
        self._seed = seed if settings.causets.seed is None else settings.causets.seed

    def _source_fingerprint(self) -> str:
        """A digest of the settings, the seed, and the generator's source code."""
        import castoff.trainers.gnn.causets.samples  # noqa: F401  # texts_of needs the module

        return digest(
            {"causets": self._causets, "seed": self._seed, "text": texts_of("castoff.trainers.gnn.causets")}
        )

    def counts(self) -> list[int]:
        """The number of sets, as that of a single store."""
        return [int(self._causets.number)]

    @contextmanager
    def _opened(self, store: int) -> Iterator[tuple[str, Callable[[int], Any]]]:
        from castoff.trainers.gnn.causets.samples import sample

        yield "data.causets", functools.partial(sample, self._causets, self._seed)


class FromFiles(Making):
    """Makes graphs of stored samples by a reader, a filter and a transform."""

    def __init__(self, settings: Files):
        super().__init__(settings)
        self._settings = settings
        self._paths = [
            expanded(file, f"data.files[{number}]").absolute() for number, file in enumerate(settings.files)
        ]
        self._reader: Callable[..., Any] | None = resolved(settings.reader)
        self._types = [
            getattr(torch, dtype_name(type_name)) for type_name in (settings.float_type, settings.int_type)
        ]
        self.source = "reader" if self._reader else "files"

    def _source_fingerprint(self) -> str:
        """A digest of the files as they are now, the settings, and the reader's source code."""
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
        """The number of samples in each store; checks that the built-in reader's arrays exist."""
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
        with opened(self._paths[store]) as opened_store:
            yield str(opened_store.path), self._reading(opened_store)

    def _reading(self, store: Store) -> Callable[[int], Any]:
        if self._reader is None:
            return functools.partial(BuiltIn(self._settings).read, store)
        reader, (float_type, int_type) = self._reader, self._types
        return lambda index: reader(store.root, index, float_type, int_type, self._validate)


def wrong(data: Data) -> list[str]:
    """What is wrong with a graph: its structure, values that are not finite, or the type of its edges."""
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
        problems.append(f"edge_index is of {edges.dtype}, but takes whole numbers")
    return problems


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Report exceptions from user code that a configuration field names as errors with the field and the
    line in that code.
    """
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # whatever it is, the error must name the sample
        frame = traceback.extract_tb(error.__traceback__)[-1]
        location = f"{Path(frame.filename).name}, line {frame.lineno}"
        text = " ".join(str(error).split())
        raise ConfigError([f"data.{name}: {type(error).__name__}: {text} ({location})"]) from error
