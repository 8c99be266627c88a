"""Graphs of stores whose arrays have known names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.causets.features import NODE, SCALARS, node_features, scalars
from castoff.trainers.gnn.causets.order import links
from castoff.trainers.gnn.graphs.built_in import BuiltIn
from castoff.trainers.gnn.graphs.settings import Files
from castoff.trainers.gnn.graphs.stores import opened
from tests.trainers.gnn.graphs import written

ORDERS = written.orders(3)


def read(path: Path, index: int, **fields: Any) -> Any:
    reader = BuiltIn(Files(files=[str(path)], **{"targets": ("dimension",), **fields}))
    with opened(path) as store:
        assert reader.problems(store) == []
        return reader.read(store, index)


@pytest.fixture
def one_by_one(tmp_path: Path) -> Path:
    return written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(ORDERS))


@pytest.fixture
def stacked(tmp_path: Path) -> Path:
    return written.julia_hdf5(tmp_path / "a.h5", written.stacked(ORDERS))


def test_links_are_edges_both_ways_and_features_are_computed(one_by_one: Path) -> None:
    for index, order in enumerate(ORDERS):
        graph, bare = read(one_by_one, index, targets=("manifold_like", "dimension")), links(order)
        dense = torch.zeros(len(order), len(order)).index_put_(tuple(graph.edge_index), torch.ones(()))
        assert (dense.numpy() == (bare | bare.T)).all()
        assert (graph.x.numpy() == node_features(order, bare)).all()
        assert graph.y.tolist() == [[1.0, 2.0 + index]]
        assert "graph_features" not in graph


def test_relations_types_and_numbers_of_the_whole(one_by_one: Path) -> None:
    order = ORDERS[0]
    graph = read(
        one_by_one,
        0,
        edges="relations",
        float_type="float64",
        int_type="int32",
        features=(NODE[4], NODE[0]),
        graph_features=("dimension", SCALARS[0]),
    )
    assert graph.edge_index.dtype == torch.int32 and graph.edge_index.shape[1] == 2 * order.sum()
    computed = node_features(order, links(order))
    assert graph.x.dtype == torch.float64 and (graph.x.numpy() == computed[:, [4, 0]]).all()
    assert graph.graph_features.tolist() == [[2.0, float(scalars(order, links(order))[0])]]


def test_stored_numbers_of_elements_lose_their_padding(stacked: Path) -> None:
    graph = read(stacked, 1, features=("in_degree", NODE[0]))
    assert graph.x[:, 0].tolist() == ORDERS[1].sum(0).tolist() and graph.x.shape == (len(ORDERS[1]), 2)


def test_several_numbers_of_an_element_are_several_columns(tmp_path: Path) -> None:
    places = [numpy.arange(2.0 * len(order)).reshape(-1, 2) for order in ORDERS]
    content = written.one_by_one(ORDERS, places=places)
    for path in (
        written.julia_zarr(tmp_path / "a.zarr", content),  # read as (2, elements)
        written.python_zarr(tmp_path / "b.zarr", content),
    ):
        assert read(path, 2, features=("places",)).x.tolist() == places[2].tolist()


def test_what_belongs_to_an_element_goes_where_it_goes(tmp_path: Path) -> None:
    order = ORDERS[0]
    places = numpy.random.default_rng(0).permutation(len(order))
    mixed = {"adj": order[numpy.ix_(places, places)], "in_degree": order.sum(0)[places], "dimension": 2}
    path = written.python_zarr(tmp_path / "a.zarr", {"cset_1": mixed})
    graph = read(path, 0, transposed=False, features=("in_degree", NODE[0]))
    assert torch.allclose(graph.x[:, 0] / (len(order) - 1), graph.x[:, 1])


def test_nan_is_an_error_or_becomes_a_number(tmp_path: Path) -> None:
    past = [order.sum(0).astype(float) for order in ORDERS]
    past[1][:2] = numpy.nan
    path = written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(ORDERS, in_degree=past))
    with pytest.raises(
        ConfigError, match=rf"in_degree: has NaN for 2 of {len(past[1])} elements.*data\.missing"
    ):
        read(path, 1, features=("in_degree",))
    assert read(path, 1, features=("in_degree",), missing=-1.0).x[:3, 0].tolist() == [-1, -1, past[1][2]]


def test_what_a_store_lacks_is_reported_with_what_it_has(one_by_one: Path) -> None:
    settings = Files(
        files=["a"],
        adjacency="adjacensy",
        sizes="size",
        targets=("dimensions",),
        features=("heigth", "adj"),
        graph_features=("dimension", "log sise"),
    )
    with opened(one_by_one) as store:
        said = "\n".join(BuiltIn(settings).problems(store))
    assert "data.adjacency: is 'adjacensy', but there is no such array" in said
    assert "data.sizes: is 'size'" in said
    assert "data.targets[0]: is 'dimensions', but there is no such array; did you mean dimension?" in said
    assert "data.features[0]: is 'heigth', but there is no such array; did you mean height?" in said
    assert "did you mean log size?" in said and said.count("data.") == 5


def test_a_store_without_a_known_matrix_needs_the_field(tmp_path: Path) -> None:
    path = written.python_zarr(tmp_path / "a.zarr", {"cset_1": {"relation": ORDERS[0], "dimension": 2}})
    with opened(path) as store:
        (said,) = BuiltIn(Files(files=["a"], targets=("dimension",))).problems(store)
    assert "data.adjacency: name the array that holds the matrices" in said and "dimension, relation" in said
    assert len(read(path, 0, adjacency="relation").x) == len(ORDERS[0])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"targets": ("adj",)}, "adj: holds uint8 of the shape"),
        ({"features": ("dimension",)}, "dimension: holds int64 of the shape"),
        ({"sizes": "half"}, "half: holds 2.5, which is not a whole number"),
        ({"sizes": "dimension"}, "adj: its size is 2 elements, but its matrix"),
    ],
)
def test_arrays_of_another_kind_are_reported(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    content = written.one_by_one(ORDERS, half=[2.5] * 3)
    with pytest.raises(ConfigError, match=said):
        read(written.julia_zarr(tmp_path / "a.zarr", content), 0, **fields)
