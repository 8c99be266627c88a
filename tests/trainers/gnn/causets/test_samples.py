"""A graph follows from a seed and an index alone, and tells the truth of its causal set."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path

import numpy
import pytest
import torch
from torch_geometric.data import Data

from castoff.trainers.gnn.causets.estimators import myrheim_meyer
from castoff.trainers.gnn.causets.features import NODE, SCALARS, node_features, scalars
from castoff.trainers.gnn.causets.order import chains, links, ordering_fraction
from castoff.trainers.gnn.causets.samples import drawn, sample
from castoff.trainers.gnn.causets.settings import MIX, NAMES, Causets
from tests.trainers import toys

SMALL = Causets(number=40, size=(8, 30))


def digest(graph: Data) -> str:
    parts = graph.to_dict()
    return hashlib.sha256(b"".join(parts[name].numpy().tobytes() for name in sorted(parts))).hexdigest()


def digests(seed: int, order: list[int]) -> dict[int, str]:
    return {index: digest(sample(SMALL, seed, index)) for index in order}


def test_a_graph_follows_from_seed_and_index(tmp_path: Path) -> None:
    """In another process, and asked for in another order, it is bit for bit the same."""
    here = digests(3, list(range(40)))
    assert digests(3, random.Random(1).sample(range(40), 40)) == here
    assert len(set(here.values())) == 40
    assert not set(here.values()) & set(digests(4, list(range(40))).values())
    assert not set(here.values()) & set(digests(-3, list(range(40))).values())
    (elsewhere,) = toys.run(digests, 3, [*range(39, -1, -1)], folder=tmp_path, world_size=1)
    assert elsewhere == here


def numpy_state() -> str:
    return repr(numpy.random.get_state())


def test_the_global_generators_change_nothing_and_are_left_alone() -> None:
    torch.manual_seed(1)
    numpy.random.seed(1)
    one = digest(sample(SMALL, 0, 5))
    before, state = torch.get_rng_state(), numpy_state()
    torch.manual_seed(2)
    numpy.random.seed(2)
    assert digest(sample(SMALL, 0, 5)) == one
    torch.manual_seed(1)
    numpy.random.seed(1)
    sample(SMALL, 0, 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert numpy_state() == state


def test_the_settings_own_seed_comes_first() -> None:
    own = Causets(number=40, size=(8, 30), seed=3)
    assert digest(sample(own, 7, 1)) == digest(sample(SMALL, 3, 1))


def test_kinds_come_as_often_as_they_weigh_and_sizes_alike_often() -> None:
    found = [drawn(SMALL, 0, index) for index in range(1500)]
    names = Counter(name for name, _ in found)
    for name, weight in MIX.items():
        share = weight / sum(MIX.values())
        assert names[name] / 1500 == pytest.approx(share, abs=4.5 * (share * (1 - share) / 1500) ** 0.5)
    sizes = Counter(len(causet.order) for _, causet in found)
    assert set(sizes) == set(range(8, 31))


def test_only_kinds_that_are_named_come() -> None:
    settings = Causets(size=(8, 20), kinds={"cut": 0.0, "merged": 2.0})
    assert {drawn(settings, 0, index)[0] for index in range(20)} == {"merged"}


@pytest.mark.parametrize("index", range(12))
def test_a_graph_holds_features_of_its_causal_set(index: int) -> None:
    made = sample(SMALL, 0, index)
    name, causet = drawn(SMALL, 0, index)
    order, number = causet.order, len(causet.order)
    assert made.x.shape == (number, len(NODE)) and made.x.dtype == torch.float32
    assert made.y.shape == (1, 2) and made.y.dtype == torch.float32
    assert made.y[0].tolist() == pytest.approx([float(causet.manifold_like), causet.dimension])
    assert NAMES[int(made.kind)] == name and made.kind.shape == (1,)
    edges = {tuple(pair) for pair in made.edge_index.T.tolist()}
    bare = {tuple(pair) for pair in numpy.argwhere(links(order)).tolist()}
    assert made.edge_index.dtype == torch.int64
    assert edges == bare | {(late, early) for early, late in bare}
    assert made.graph_features.shape == (1, len(SCALARS))
    assert made.graph_features.dtype == torch.float32
    given = dict(zip(SCALARS, made.graph_features[0].tolist(), strict=True))
    assert given["ordering fraction"] == pytest.approx(ordering_fraction(order), rel=1e-6)
    assert given["Myrheim-Meyer"] == pytest.approx(myrheim_meyer(order), rel=1e-6)
    assert given["log size"] == pytest.approx(numpy.log(number), rel=1e-6)
    assert given["height"] == pytest.approx((chains(order).max() + 1) / number**0.5, rel=1e-6)


def test_features_turn_round_with_the_order() -> None:
    """Past and future change places when time runs backwards."""
    order = drawn(SMALL, 0, 0)[1].order
    back = order[::-1, ::-1].T.copy()
    there, other = node_features(order, links(order)), node_features(back, links(back))[::-1]
    swapped = [number + 1 - 2 * (number % 2) for number in range(len(NODE))]
    assert (there[:, swapped] == other).all()
    assert there[:, 4:6].max() == 1


def test_the_features_of_a_chain() -> None:
    """Of the last of five: all precede it, one with nothing between, one with one, two, three."""
    order = numpy.triu(numpy.ones((5, 5), dtype=bool), k=1)
    last = dict(zip(NODE, node_features(order, links(order))[-1].tolist(), strict=True))
    assert last == {
        **{"past": 1, "future": 0, "links to the past": 1, "links to the future": 0},
        **{"height": 1, "depth": 0, "fraction in the past": 1, "fraction in the future": 0},
        **{"past over 1": 1, "future over 1": 0, "past over 2": 1, "future over 2": 0},
        **{"past over 3": 1, "future over 3": 0},
    }
    found = dict(zip(SCALARS, scalars(order, links(order)).tolist(), strict=True))
    assert found["links"] == pytest.approx(4 / 5) and found["ends"] == pytest.approx(2 / 5)
    shares = [found[f"relations over {between}"] for between in (1, 2, 3)]
    assert shares == pytest.approx([3 / 5, 2 / 5, 1 / 5])


def test_a_set_without_relations_has_features() -> None:
    order = numpy.zeros((5, 5), dtype=bool)
    assert not node_features(order, order).any()
