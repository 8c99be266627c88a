"""The three parts of the graphs: disjoint, complete, and the same on all ranks and in all workers."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Batch

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.batches import drawn_from
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.graphs import splits
from castoff.trainers.gnn.graphs.records import encoded
from castoff.trainers.gnn.graphs.splits import prepared
from castoff.trainers.task import Splits
from castoff.trainers.task.splitting import split
from tests.trainers.gnn.graphs import users, written
from tests.trainers.toys import run

ORDERS = written.orders(20)


def alone() -> RankContext:
    return RankContext(0, 1, torch.device("cpu"), alone=True)


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    store = written.julia_zarr(tmp_path / "a.zarr", written.stacked(ORDERS))
    return {"files": [str(store)], "targets": ["dimension"], "output": str(tmp_path / "out")}


def indices(parts: Splits) -> list[list[int]]:
    return [list(part.indices) for part in parts]


@pytest.mark.parametrize("shuffle", [True, False])
def test_parts_are_disjoint_and_have_all(fields: dict[str, Any], shuffle: bool) -> None:
    parts = indices(prepared({**fields, "shuffle": shuffle, "split": [0.5, 0.3, 0.2]}, 3, alone()))
    assert list(map(len, parts)) == [10, 6, 4]
    every = [index for part in parts for index in part]
    assert sorted(every) == list(range(20)) and (every == sorted(every)) is not shuffle


def test_they_are_those_that_other_systems_have_with_this_seed(fields: dict[str, Any]) -> None:
    parts = prepared(fields, 3, alone())
    whole = parts.train.dataset
    assert indices(parts) == [list(part.indices) for part in split(whole, [0.8, 0.1, 0.1], 3)]
    assert indices(parts) != indices(prepared(fields, 4, alone()))


@pytest.mark.parametrize(("subset", "number"), [(0.25, 5), (1, 20), (0.01, 1), (7, 7), (20, 20)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_subset_is_a_share_or_a_number(
    fields: dict[str, Any], subset: float, number: int, shuffle: bool
) -> None:
    parts = indices(prepared({**fields, "subset": subset, "shuffle": shuffle}, 0, alone()))
    every = [index for part in parts for index in part]
    assert len(set(every)) == len(every) == number
    assert shuffle or every == sorted(every)


def test_a_subset_of_more_than_there_are_is_reported(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"data\.subset: is 21, but there are 20 graphs"):
        prepared({**fields, "subset": 21}, 0, alone())


def test_generated_sets_are_cut_by_index(tmp_path: Path) -> None:
    causets = {"number": 10, "size": [8, 12]}
    parts = prepared({"causets": causets, "split": [0.6, 0.2, 0.2]}, 5, alone(), beside=tmp_path)
    assert indices(parts) == [list(range(6)), [6, 7], [8, 9]]
    own = sample(Causets(number=10, size=(8, 12)), 5, 8)
    assert encoded(parts.test[0]) == encoded(own)
    assert (tmp_path / "graphs").is_dir()


def test_what_is_wrong_with_the_section_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"data: has neither files .* nor causets"):
        prepared({}, 0, alone())


def test_a_transform_is_applied_each_time_to_what_was_written(fields: dict[str, Any]) -> None:
    plain, changed = (
        prepared(fields, 0, alone()),
        prepared({**fields, "transform": users.doubled}, 0, alone()),
    )
    for _ in range(2):
        assert (changed.train[0].x == 2 * plain.train[0].x).all()
    assert drawn_from(plain.train) == frozenset() and "torch" in drawn_from(changed.train)


# --- Ranks and workers ----------------------------------------------------------------------------


def bits(graphs: Any) -> str:
    total = hashlib.sha256()
    for name, value in graphs.to_dict().items():
        total.update(f"{name} {value.dtype} {tuple(value.shape)}".encode() + value.numpy().tobytes())
    return total.hexdigest()


def loaded(part: Any, workers: int) -> list[str]:
    loader = DataLoader(part, 4, num_workers=workers, collate_fn=Batch.from_data_list)
    return [bits(batch) for batch in loader]


def on_a_rank(fields: dict[str, Any]) -> tuple[list[list[int]], list[str]]:
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        parts = prepared(fields, 1, RankContext(me.rank, me.world_size, torch.device("cpu")))
        return indices(parts), loaded(parts.train, 4)
    finally:
        cleanup_ddp()


def test_ranks_with_four_workers_each_read_the_same_bits(
    fields: dict[str, Any], tmp_path: Path, for_real: None
) -> None:
    answers = run(on_a_rank, fields, folder=tmp_path / "ranks", world_size=3)
    here = prepared(fields, 1, alone())
    assert answers == [(indices(here), loaded(here.train, 0))] * 3


def test_workers_that_are_spawned_read_them_too(fields: dict[str, Any]) -> None:
    part = prepared(fields, 1, alone()).train
    first = loaded(part, 0)
    assert len(pickle.dumps(part)) < 10_000  # the path, and neither graphs nor maps
    assert loaded(pickle.loads(pickle.dumps(part)), 0) == first


def refused(fields: dict[str, Any]) -> str:
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        with pytest.raises(ConfigError) as error:
            prepared(fields, 1, RankContext(me.rank, me.world_size, torch.device("cpu")))
        return str(error.value)
    finally:
        cleanup_ddp()


def test_what_rank_0_cannot_read_is_reported_on_every_rank(
    fields: dict[str, Any], tmp_path: Path, for_real: None
) -> None:
    answers = run(refused, {**fields, "targets": ["dimensio"]}, folder=tmp_path / "ranks", world_size=2)
    assert len(set(answers)) == 1 and "did you mean dimension?" in answers[0]


def on_two_hosts(fields: dict[str, Any], own: Path) -> tuple[str, list[str]]:
    """Rank 1 does not see what rank 0 writes, and has a disk of its own."""
    me = RankEnv.detect()
    build = splits._build
    if me.rank == 1:
        splits.read_about = lambda folder: None  # type: ignore[attr-defined]
        splits._build = lambda settings, seed, output: build(settings, seed, own)
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        parts = prepared(fields, 1, RankContext(me.rank, me.world_size, torch.device("cpu")))
        return str(parts.train.dataset.saved.folder.parent), loaded(parts.train, 0)
    finally:
        cleanup_ddp()


def test_hosts_that_do_not_see_each_others_disks_write_their_own(
    fields: dict[str, Any], tmp_path: Path, for_real: None
) -> None:
    own = tmp_path / "other"
    answers = run(on_two_hosts, fields, own, folder=tmp_path / "ranks", world_size=2)
    assert [folder for folder, _ in answers] == [fields["output"], str(own)]
    assert answers[0][1] == answers[1][1]
