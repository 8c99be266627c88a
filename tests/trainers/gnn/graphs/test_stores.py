"""Stores as Julia and Python write them: how many samples, which arrays, and which way a matrix lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
import zarr

import castoff.trainers.gnn as QG
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.graphs.orders import ordered
from castoff.trainers.gnn.graphs.stores import opened
from tests.trainers.gnn.graphs import written

ORDERS = written.orders(5)

STORES = {
    "julia-one-by-one": lambda at: written.julia_zarr(at, written.one_by_one(ORDERS)),
    "julia-no-group-at-the-top": lambda at: written.julia_zarr(at, written.one_by_one(ORDERS), root=False),
    "julia-stacked": lambda at: written.julia_zarr(at, written.stacked(ORDERS)),
    "julia-stacked-samples-first": lambda at: written.julia_zarr(at, written.stacked(ORDERS, last=False)),
    "julia-stacked-no-group": lambda at: written.julia_zarr(at, written.stacked(ORDERS), root=False),
    "zarr-2": lambda at: written.python_zarr(at, written.stacked(ORDERS, last=False), 2),
    "zarr-3": lambda at: written.python_zarr(at, written.stacked(ORDERS, last=False), 3),
    "zarr-3-one-by-one": lambda at: written.python_zarr(at, written.one_by_one(ORDERS), 3),
    "hdf5-one-by-one": lambda at: written.julia_hdf5(at.with_suffix(".h5"), written.one_by_one(ORDERS)),
    "hdf5-stacked": lambda at: written.julia_hdf5(at.with_suffix(".hdf5"), written.stacked(ORDERS)),
    "hdf5-by-its-first-bytes": lambda at: written.julia_hdf5(at, written.stacked(ORDERS, last=False)),
}


@pytest.mark.parametrize("kind", STORES)
def test_every_layout_gives_the_orders_that_were_written(kind: str, tmp_path: Path) -> None:
    with opened(STORES[kind](tmp_path / "store.zarr")) as store:
        assert len(store) == len(ORDERS)
        matrices = store.find(("adjacency_matrix", "adj")) or ""
        sizes = store.find(("cset_size",))
        for index, order in enumerate(ORDERS):
            size = None if sizes is None else int(store.read(sizes, index, "data.sizes"))
            found = ordered(store.read(matrices, index, "data.adjacency"), size, None)
            assert (found.order == order).all() and found.numbers is None
            assert float(store.read("dimension", index, "data.targets").reshape(())) == 2 + index % 3


def test_groups_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    many = written.orders(11)
    with opened(written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(many))) as store:
        assert store.groups is not None and store.groups[9:] == ["cset_10", "cset_11"]
        assert len(store.read("adj", 10, "data.adjacency")) == len(many[10])


@pytest.mark.parametrize("name", ["num_causal_sets", "num_samples"])
def test_what_a_store_says_of_its_samples_counts(name: str, tmp_path: Path) -> None:
    content = {**written.stacked(ORDERS), name: 3}
    with opened(written.julia_zarr(tmp_path / "a.zarr", content)) as store:
        assert len(store) == 3 and name not in store.names()


def test_arrays_in_a_group_are_found(tmp_path: Path) -> None:
    arrays = written.stacked(ORDERS)
    content = {"adjacency_matrix": {"data": arrays.pop("adjacency_matrix")}, "targets": arrays}
    with opened(written.julia_zarr(tmp_path / "a.zarr", content)) as store:
        assert len(store) == len(ORDERS)
        assert store.find(("adjacency_matrix",)) == "adjacency_matrix/data"
        assert store.find(("cset_size",)) == "targets/cset_size"


def test_a_store_whose_samples_cannot_be_counted_is_listed(tmp_path: Path) -> None:
    content = {"a": numpy.zeros((4, 7)), "b": numpy.zeros(5), "c": numpy.zeros(6)}
    path = written.python_zarr(tmp_path / "a.zarr", content)
    with pytest.raises(ConfigError) as refusal, opened(path):
        pass
    assert str(path) in str(refusal.value)
    assert "a (4, 7), b (5,), c (6,)" in str(refusal.value) and "num_samples" in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([9], "but it has 5 groups"),
        ([1, 2], "holds"),
        ([2.5], "2.5"),
        ([numpy.nan], "nan"),
        ([numpy.inf], "inf"),
        ([b"five"], "five"),
    ],
)
def test_a_count_that_cannot_be_is_an_error(given: list[float], said: str, tmp_path: Path) -> None:
    content = {**written.one_by_one(ORDERS), "num_samples": numpy.array(given)}
    with pytest.raises(ConfigError, match=said), opened(written.julia_hdf5(tmp_path / "a.h5", content)):
        pass


def test_links_that_lead_nowhere_are_no_arrays(tmp_path: Path) -> None:
    path = written.julia_hdf5(tmp_path / "a.h5", written.one_by_one(ORDERS))
    with h5py.File(path, "a") as file:
        file["cset_6"] = h5py.SoftLink("/gone")
        file["cset_7"] = h5py.ExternalLink("gone.h5", "/")
        file["cset_1/more"] = h5py.SoftLink("/gone")
    with opened(path) as store:
        assert len(store) == len(ORDERS) and "more" not in store.names()


def test_what_the_first_sample_has_alone_is_not_offered_in_its_own_place(tmp_path: Path) -> None:
    content = written.one_by_one(ORDERS)
    del content["cset_3"]["dimension"]
    with opened(written.julia_zarr(tmp_path / "a.zarr", content)) as store:
        with pytest.raises(ConfigError) as refusal:
            store.read("dimension", 2, "data.targets")
        assert "there is no array dimension" in str(refusal.value)
        assert "did you mean dimension" not in str(refusal.value)


def test_an_array_that_lacks_samples_is_an_error(tmp_path: Path) -> None:
    content = {**written.stacked(ORDERS), "num_samples": 9}
    said = r"dimension: has the shape \(5,\), but there are 9 samples"
    path = written.julia_zarr(tmp_path / "a.zarr", content)
    with opened(path) as store, pytest.raises(ConfigError, match=said):
        store.read("dimension", 0, "data.targets")


@pytest.mark.parametrize("kind", ["empty", "text", "array", "broken", "half"])
def test_what_is_no_store_is_reported_with_its_place(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    if kind == "empty":
        path.mkdir()
    elif kind == "text":
        path.write_text("nothing")
    elif kind == "array":
        which: dict[str, Any] = {"zarr_format": 2} if written.ZARR_3 else {}
        zarr.save_array(str(path), numpy.zeros(3), **which)  # type: ignore[arg-type]
    elif kind == "broken":
        written.python_zarr(path, {"a": numpy.zeros(3)})
        (path / "zarr.json").write_text("{")
    else:
        path = written.julia_hdf5(tmp_path / "a.h5", written.stacked(ORDERS))
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ConfigError) as refusal, opened(path):
        pass
    assert str(path) in str(refusal.value)


@pytest.mark.skipif(not written.ZARR_3, reason="zarr 2 does not open a group that is open")
def test_readers_get_the_groups_of_zarr_and_h5py(tmp_path: Path) -> None:
    folder = written.julia_zarr(tmp_path / "a.zarr", written.one_by_one(ORDERS), root=False)
    with opened(folder) as store:
        assert isinstance(store.root, zarr.Group)
        again = [store.root, zarr.open_group(store.root, mode="r"), zarr.open_group(store.root, path="")]
        for group in again:
            assert sorted(group.keys()) == [f"cset_{number}" for number in range(1, 6)]
        assert zarr.open_array(store.root, path="cset_2/adj", mode="r").shape[0] == len(ORDERS[1])
        assert getattr(store.root, "root", None) == folder
    with opened(written.julia_hdf5(tmp_path / "a.h5", written.one_by_one(ORDERS))) as store:
        assert isinstance(store.root, h5py.Group)


@pytest.mark.parametrize("kind", ["julia", "zarr", "hdf5"])
def test_all_of_a_store_as_a_dict(kind: str, tmp_path: Path) -> None:
    content = {"number": numpy.array([3]), "above": {"a": numpy.eye(2), "below": {"b": numpy.arange(4)}}}
    write: Any = {"julia": written.julia_zarr, "zarr": written.python_zarr, "hdf5": written.julia_hdf5}
    found = QG.zarr_file_to_dict(str(write[kind](tmp_path / "a", content)))
    assert list(found) == ["above", "number"] or list(found) == ["number", "above"]
    assert found["number"].tolist() == [3]
    assert found["above"]["a"].tolist() == [[1, 0], [0, 1]]
    assert found["above"]["below"]["b"].tolist() == [0, 1, 2, 3]


def test_a_chunk_of_many_samples_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written.python_zarr(tmp_path / "a.zarr", {"a": numpy.arange(20.0).reshape(10, 2)})
    with opened(path) as store:
        reads = []
        usual = zarr.Array.__getitem__

        def counted(array: Any, place: Any) -> Any:
            reads.append(place)
            return usual(array, place)

        monkeypatch.setattr(zarr.Array, "__getitem__", counted)
        assert [store.read("a", index, "data.features")[0] for index in range(10)] == list(range(0, 20, 2))
        assert len(reads) == 1
