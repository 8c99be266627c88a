"""Data sets of causal sets: the same ones everywhere, and never one in two of them."""

from __future__ import annotations

import hashlib
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch_geometric.data import Data

from trainers.core.config import Training
from trainers.core.data import training_loader
from trainers.core.distributed import Place
from trainers.gnn import data
from trainers.gnn.causets.estimators import myrheim_meyer
from trainers.gnn.causets.order import chains, links, ordering_fraction
from trainers.gnn.data import FEATURES, Causets, causet, graph
from trainers.gnn.task import CausetTask

CPU = torch.device("cpu")


def digest(graph: Data) -> str:
    parts = graph.to_dict()
    return hashlib.sha256(b"".join(parts[name].numpy().tobytes() for name in sorted(parts))).hexdigest()


def digests(seed: int, order: list[int]) -> dict[int, str]:
    sets = Causets(len(order), mean=24, seed=seed)
    return {index: digest(sets[index]) for index in order}


ELSEWHERE = (
    "import sys; from tests.trainers.gnn.test_data import digests; print(digests(3, list(range(19, -1, -1))))"
)


def test_a_set_follows_from_seed_and_index() -> None:
    """In another process, and asked for in another order, it is bit for bit the same."""
    here = digests(3, list(range(20)))
    shuffled = random.Random(1).sample(range(20), 20)
    assert digests(3, shuffled) == here
    assert len(set(here.values())) == 20
    assert not set(here.values()) & set(digests(4, list(range(20))).values())
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(dict(reversed(here.items())))


def test_the_global_generators_change_nothing() -> None:
    torch.manual_seed(1)
    numpy.random.seed(1)
    one = digest(Causets(8)[5])
    torch.manual_seed(2)
    numpy.random.seed(2)
    assert digest(Causets(8)[5]) == one


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_workers_of_a_loader_change_nothing(workers: int) -> None:
    training = Training(
        path="",
        num_epochs=1,
        batch_size=5,
        optimizer_type=None,
        num_workers=workers,
        multiprocessing_context="fork",
        shuffle=False,
    )
    sets = Causets(20, mean=24, seed=3)
    loader = training_loader(sets, training, Place(0, 1, CPU), CausetTask().collate)
    found = [
        digest(each)
        for group in loader.groups(0, 0)
        for micro in group.micros
        for each in micro.data.to_data_list()
    ]
    assert found == list(digests(3, list(range(20))).values())


def test_no_set_is_in_two_of_the_three() -> None:
    splits = CausetTask(sets=(37, 21, 30), mean=24).build_data()
    assert [len(part) for part in splits] == [37, 21, 30]
    found = [{digest(part[index]) for index in range(len(part))} for part in splits]
    assert [len(each) for each in found] == [37, 21, 30]
    assert len(found[0] | found[1] | found[2]) == 88


def test_what_there_is_of_each_kind() -> None:
    """Half manifold-like, its dimensions alike often."""
    dimensions = numpy.array([causet(0, index, 4.0)[1] for index in range(2000)])
    assert (dimensions > 0).sum() == 1000
    for dimension in (2, 3, 4):
        assert (dimensions == dimension).sum() == pytest.approx(1000 / 3, abs=4 * (1000 * 2 / 9) ** 0.5)


def test_the_ordering_fraction_alone_does_not_tell() -> None:
    """Those of percolation lie among those of sprinklings."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for index in range(400):
        if index % 4 != 2:
            order, dimension = causet(1, index, 48.0)
            found[dimension > 0].append(ordering_fraction(order))
    low, high = numpy.percentile(found[True], [5, 95])
    inside = [low < fraction < high for fraction in found[False]]
    assert numpy.mean(inside) > 0.7


@pytest.mark.parametrize("index", range(4))
def test_a_graph_says_what_the_set_is(index: int) -> None:
    order, dimension = causet(5, index, 30.0)
    made = graph(order, dimension)
    number = len(order)
    assert made.x.shape == (number, FEATURES) and made.x.dtype == torch.float32
    assert bool(torch.isfinite(made.x).all())
    edges = {(int(one), int(other)) for one, other in made.edge_index.T}
    bare = {(int(one), int(other)) for one, other in numpy.argwhere(links(order))}
    assert edges == bare | {(other, one) for one, other in bare}
    assert made.edge_index.shape[1] == len(edges)
    assert float(made.manifold) == (index < 2)
    assert (float(made.dimension) > 0) == (index < 2) and float(made.dimension) == dimension
    assert float(made.ordering_fraction) == pytest.approx(ordering_fraction(order))
    assert float(made.estimate) == pytest.approx(myrheim_meyer(order))


def test_features_turn_round_with_the_order() -> None:
    """Past and future change places when time runs backwards, and the height its sign."""
    order, dimension = causet(5, 0, 30.0)
    there, back = graph(order, dimension).x, graph(order[::-1, ::-1].T.copy(), dimension).x.flip(0)
    assert torch.equal(there[:, [1, 0, 3, 2]], back[:, :4])
    assert torch.equal(there[:, 4], -back[:, 4])
    assert float(there[:, 4].max()) <= 1
    top = int(chains(order).argmax())
    assert float(there[top, 4]) == 1  # the end of a longest chain has nothing above it


def test_indices_that_are_none() -> None:
    sets = Causets(3)
    for index in (-1, 3):
        with pytest.raises(IndexError):
            sets[index]
        with pytest.raises(IndexError):
            sets.causet(index)


def test_graphs_are_kept_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = Causets(10, mean=24)
    assert sets[1] is sets[1]
    one = pickle.loads(pickle.dumps(sets))[2]
    monkeypatch.setattr(data, "CACHE", sets._bytes + 1)
    assert sets[1] is sets[1]
    assert sets[2] is not sets[2]
    assert digest(sets[2]) == digest(one)
