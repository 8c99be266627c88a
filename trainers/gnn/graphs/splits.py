"""Turns a configuration's `data` into graphs, written once, and their three parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from torch.utils.data import Subset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.configuration.pyobject import resolved
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import SPLIT, derived
from castoff.trainers.gnn.graphs.building import built
from castoff.trainers.gnn.graphs.dataset import Graphs
from castoff.trainers.gnn.graphs.making import FromCausets, FromFiles, Making
from castoff.trainers.gnn.graphs.saved import read_about
from castoff.trainers.gnn.graphs.settings import Files, Generated, read
from castoff.trainers.task import Splits


def prepared(data: Any, seed: int, context: RankContext, *, beside: Path | None = None) -> Splits:
    """The three parts of the graphs that a section `data` describes, the same on all ranks.

    Rank 0 writes them if they are missing, and all ranks map them; a host that does not see what rank 0 has
    written writes its own. All ranks must call this. `beside`: the training's folder, in which `graphs` is
    made if `data.output` is not set; None: the working folder.

    Raises:
        ConfigError: lists every problem of the section; or a sample cannot be read.
    """
    problems: list[str] = []
    settings = read(data, problems)
    if problems or settings is None:
        raise ConfigError(problems)
    output = (beside or Path()) / "graphs"
    if settings.output is not None:
        output = expanded(settings.output, "data.output")
    folder = _written(settings, seed, context, output.absolute())
    graphs = Graphs(folder, resolved(settings.transform))
    return parts(graphs, settings, seed)


def _written(settings: Files | Generated, seed: int, context: RankContext, output: Path) -> Path:
    """The folder with the graphs, as this host sees it."""
    folder = Path(context.on_main(lambda: str(_build(settings, seed, output))))
    problem: ConfigError | None = None
    if read_about(folder) is None:
        try:
            folder = _build(settings, seed, output)
        except ConfigError as error:
            problem = ConfigError([f"rank {context.rank}: {each}" for each in error.problems], error.origin)
    context.on_main(partial(_raise_first, context.gather_on_main(problem)))
    return folder


def _build(settings: Files | Generated, seed: int, output: Path) -> Path:
    making: Making = FromFiles(settings) if isinstance(settings, Files) else FromCausets(settings, seed)
    return built(making, output, max(settings.n_processes, 1), settings.chunksize)


def _raise_first(problems: Sequence[ConfigError | None]) -> None:
    for problem in problems:
        if problem is not None:
            raise problem


def parts(graphs: Any, settings: Files | Generated, seed: int) -> Splits:
    """Three disjoint parts: cut from a random order, or from the graphs' own order.

    The first gets what rounding leaves.

    Raises:
        ConfigError: the subset is larger than the set.
    """
    subset = settings.subset if isinstance(settings, Files) else None
    taken = _taken(len(graphs), subset)
    sizes = [int(taken * share + 1e-9) for share in settings.split]
    sizes[0] += taken - sum(sizes)
    order: Sequence[int] = range(taken)
    if isinstance(settings, Files) and (settings.shuffle or taken < len(graphs)):
        drawn = Permutation(len(graphs), derived(SPLIT, seed))
        order = drawn if settings.shuffle else sorted(drawn[:taken])
    return Splits(
        *(Subset(graphs, order[first:last]) for first, last in pairwise(accumulate(sizes, initial=0)))
    )


def _taken(total: int, subset: float | None) -> int:
    """The number of graphs that are used."""
    if subset is None:
        return total
    if subset > total:
        raise ConfigError(
            [f"data.subset: is {subset:g}, but there are {total} graphs; write at most that many"]
        )
    return int(subset) if subset > 1 else max(1, math.ceil(subset * total - 1e-9))
