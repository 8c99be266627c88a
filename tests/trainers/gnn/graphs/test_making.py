"""Samples become graphs by a user's code or ours, by one process or several; errors name the sample."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.graphs import processes
from castoff.trainers.gnn.graphs.making import FromCausets, FromFiles, Making, wrong
from castoff.trainers.gnn.graphs.processes import records
from castoff.trainers.gnn.graphs.records import decoded
from castoff.trainers.gnn.graphs.settings import Files, Generated
from tests.trainers.gnn.graphs import users, written

ORDERS = written.orders(7)


@pytest.fixture
def stores(tmp_path: Path) -> list[str]:
    one = written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(ORDERS))
    other = written.julia_hdf5(tmp_path / "b.h5", written.one_by_one(ORDERS[:2]))
    return [str(one), str(other)]


def graphs(making: Making, number: int = 1, at_once: int = 100) -> list[Any]:
    return [record and decoded(bytearray(record)) for record in records(making, number, at_once)]


def refusal(making: Making, number: int = 1, at_once: int = 100) -> str:
    with pytest.raises(ConfigError) as error:
        graphs(making, number, at_once)
    return str(error.value)


def test_a_users_reader_filter_and_transform_are_called_in_this_order(stores: list[str]) -> None:
    fields: dict[str, Any] = {"float_type": "float64", "validate_data": False}
    made = graphs(
        FromFiles(
            Files(
                files=stores,
                reader=users.read,
                pre_filter=users.no_plane,
                pre_transform=users.collect,
                **fields,
            )
        )
    )
    assert [graph and graph.y.tolist() for graph in made[:4]] == [None, [[3]], [[4]], None]
    assert len(made) == 9 and made[8].x.dtype == torch.float64
    assert len(made[1].x) == len(ORDERS[1]) and made[1].num_edges == ORDERS[1].sum()
    assert (made[1].edge_index[0] < made[1].edge_index[1]).all()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several processes do is done here, one after the other: pickled, and in runs."""

    def mapped(function: Any, things: Any, *_: Any) -> Any:
        return map(pickle.loads(pickle.dumps(function)), things)

    monkeypatch.setattr(processes, "mapped", mapped)


@pytest.mark.long
def test_several_processes_make_the_same_in_the_same_order(stores: list[str], for_real: None) -> None:
    of_a_script = FunctionType(users.collect.__code__, vars(users))
    of_a_script.__module__ = "__main__"  # where no other process has it
    making = FromFiles(
        Files(
            files=stores,
            reader=users.read,
            pre_filter=lambda sample: sample["dimension"] != 3,
            pre_transform=of_a_script,
        )
    )
    assert list(records(making, 2, 2)) == list(records(making, 1, 2))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_runs_of_any_length_are_the_same(stores: list[str], at_once: int) -> None:
    makings = [
        FromFiles(Files(files=stores, reader=users.read, pre_transform=users.collect)),
        FromCausets(Generated(causets=Causets(number=7, size=(8, 12))), -3),
    ]
    for making in makings:
        assert list(records(making, 2, at_once)) == list(records(making, 1, at_once))


def test_a_seed_of_the_sets_own_comes_before_the_trainings() -> None:
    def word(own: int | None, seed: int) -> str:
        return FromCausets(Generated(causets=Causets(number=2, seed=own)), seed).fingerprint()

    assert word(3, 0) == word(3, 1) != word(None, 3) != word(None, 4)


def test_generated_sets_are_the_generators_own(stores: list[str]) -> None:
    causets = Causets(number=3, size=(8, 12))
    made = graphs(FromCausets(Generated(causets=causets, pre_transform=users.doubled), 5))
    for index, graph in enumerate(made):
        own = sample(causets, 5, index)
        assert (graph.x == 2 * own.x).all() and (graph.edge_index == own.edge_index).all()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("number", [1, 2])
def test_what_a_users_code_raises_is_reported_with_file_and_sample(stores: list[str], number: int) -> None:
    making = FromFiles(Files(files=stores, reader=users.read, pre_transform=users.stumbles))
    said = refusal(making, number, 3)
    for path, index in ((stores[0], 1), (stores[0], 4), (stores[1], 1)):
        assert (
            f"{path}: sample {index}: data.pre_transform: KeyError: 'no such thing' (users.py, line" in said
        )
    assert said.count("sample") == 3


def test_of_many_samples_that_cannot_be_made_the_first_are_named(stores: list[str]) -> None:
    said = refusal(FromFiles(Files(files=stores, reader=users.read)))
    assert said.count("data.reader returned a dict, but must return") == 5
    assert "sample 4" in said and "sample 5" not in said and "were not tried" in said


def test_graphs_are_validated_unless_nobody_wants_that(stores: list[str]) -> None:
    fields: dict[str, Any] = {"files": stores[:1], "reader": users.read, "pre_transform": users.broken}
    said = refusal(FromFiles(Files(**fields)))
    assert "sample 0: data.pre_transform returned a graph in which x has NaN or infinity in 1 of" in said
    assert (
        "sample 1: data.pre_transform returned a graph in which 'edge_index' contains larger indices" in said
    )
    assert (
        "sample 2: data.pre_transform returned a graph that cannot be written: lock: is a builtins.module"
        in said
    )
    said = refusal(FromFiles(Files(**fields, validate_data=False)))
    assert "sample 0" not in said and "sample 1" not in said and "sample 2" in said


def test_what_is_wrong_with_a_graph() -> None:
    right = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))
    assert wrong(right) == []
    right.edge_index = right.edge_index.double()
    assert wrong(right) == ["edge_index is of torch.float64, but takes whole numbers"]
    right.edge_index = torch.tensor([[-1], [0]])
    assert "negative" in wrong(right)[0]


def test_tensors_that_are_not_dense_are_reported_with_their_sample(stores: list[str]) -> None:
    def sparse(graph: Data) -> Data:
        graph.x = graph.x.to_sparse()
        return graph

    making = FromFiles(Files(files=stores[:1], targets=("dimension",), pre_transform=sparse))
    assert "sample 0: data.pre_transform returned a graph that cannot be written: x: is a" in refusal(making)


def test_all_that_stores_lack_is_reported_before_any_is_read(stores: list[str], tmp_path: Path) -> None:
    (tmp_path / "c.zarr").mkdir()
    said = refusal(FromFiles(Files(files=[*stores, str(tmp_path / "c.zarr")], targets=("size",))))
    assert said.count("data.targets[0]: is 'size'") == 2 and "without Zarr data" in said


def test_a_cyclic_matrix_is_reported_with_its_sample(tmp_path: Path) -> None:
    content = written.one_by_one(ORDERS)
    content["cset_3"]["adj"][-1, 0] = content["cset_3"]["adj"][0, -1] = 1
    path = written.julia_zarr(tmp_path / "a.zarr", content)
    said = refusal(FromFiles(Files(files=[str(path)], targets=("dimension",))))
    assert f"{path}: sample 2: adj: its relations have a cycle" in said and said.count("sample") == 1


def test_a_damaged_chunk_is_reported_with_its_sample(tmp_path: Path) -> None:
    path = written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(ORDERS))
    (path / "cset_2" / "adj" / "0.0").write_bytes(b"damaged")
    said = refusal(FromFiles(Files(files=[str(path)], targets=("dimension",))))
    assert f"{path}: sample 1: data.files: " in said


def test_what_cannot_be_handed_to_other_processes_is_reported(stores: list[str]) -> None:
    lock = threading.Lock()

    def held(graph: Any) -> bool:
        with lock:
            return True

    said = refusal(FromFiles(Files(files=stores, targets=("dimension",), pre_filter=held)), 2)
    assert "data.n_processes" in said and "set n_processes: 1" in said
