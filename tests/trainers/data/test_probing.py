"""Samples that differ between ranks, and sets that draw from generators of their own, are reported."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import tests.geometric  # noqa: F401  # before what loads it
from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.sample_content import Content, content
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp
from castoff.trainers.task import Splits
from castoff.trainers.task.own_generators import drawing, own_generators
from tests.trainers.optimization.test_weights import met
from tests.trainers.toys import Toy, config, run

# --- What a sample holds --------------------------------------------------------------------------


class Point(NamedTuple):
    x: torch.Tensor
    name: str


@dataclass
class Named:
    x: Any
    y: int = 1


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: float):
        self.x = x


def graph(**parts: torch.Tensor) -> Any:
    from torch_geometric.data import Data

    return Data(**parts)


def samples() -> dict[str, Any]:
    """One of each kind, made anew."""
    numbers = torch.arange(12.0).reshape(3, 4)
    return {
        "a tensor": numbers.clone(),
        "whole numbers": numbers.long(),
        "flags": numbers > 3,
        "halves": numbers.bfloat16(),
        "complex numbers": torch.complex(numbers, -numbers),
        "a turned tensor": numbers.t(),
        "an array": numbers.numpy().copy(),
        "an array of text": np.array(["a", "b"]),
        "a number of numpy": np.float32(2.5),
        "text": "a protein",
        "a number": 2.5,
        "nothing": None,
        "a tuple": (numbers.clone(), 3, "x"),
        "a dict": {"x": numbers.clone(), "names": ["a", "b"], "set": {"a", "b", "c"}},
        "a named tuple": Point(numbers.clone(), "a"),
        "a dataclass": Named({"deep": [numbers.clone()]}),
        "a graph": graph(x=numbers.clone(), edge_index=torch.tensor([[0, 1], [1, 2]])),
        "an object": SimpleNamespace(x=numbers.clone(), y=2),
        "an infinity": torch.tensor([1.0, float("inf"), float("nan")]),
    }


def test_equal_samples_are_equal() -> None:
    for kind, one in samples().items():
        assert content(one).same(content(samples()[kind])), kind


def test_different_samples_are_different() -> None:
    made = {kind: content(one) for kind, one in samples().items()}
    for kind, one in made.items():
        assert [other for other, theirs in made.items() if one.same(theirs)] == [kind]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        (torch.tensor([1, 2]), torch.tensor([2, 1])),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])),
        ({"x": 1, "y": 2}, {"x": 1, "y": 3}),
        (["a", "b"], ["b", "a"]),
        (Named(torch.ones(3)), Named(torch.zeros(3))),
        (graph(x=torch.ones(3, 1)), graph(x=torch.ones(4, 1))),
        ([1.0, (2.0, [3.0])], [1.0, (2.0, [4.0])]),
    ],
)
def test_a_small_difference_is_seen(one: Any, other: Any) -> None:
    assert not content(one).same(content(other))


def test_what_may_differ_between_hosts() -> None:
    """Roundings, folders, the order of a set, and where an object lies in memory."""
    numbers = torch.randn(1000)
    for one, other in [
        (numbers, numbers * (1 + 1e-6)),
        ("/scratch/n1/a.pt", "/scratch/n2/a.pt"),
        (Path("/tmp/job-1/a.pt"), Path("/tmp/job-2/a.pt")),
        (set("abcdefgh"), set("hgfedcba")),
        (Slotted(1.0), Slotted(2.0)),
        (object(), object()),
        (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()),
    ]:
        assert content(one).same(content(other)), one


def test_a_sample_that_holds_itself_or_much() -> None:
    knot: list[Any] = [1]
    knot.append(knot)
    assert content(knot).same(content(knot))
    began = content(list(range(10**6)))
    assert began.same(content(list(range(10**6))))


# --- Generators of a set's own --------------------------------------------------------------------


class Keeps(Dataset[Any]):
    """Adds noise from where `how` says."""

    def __init__(self, how: str, samples: int = 40):
        self.how = how
        self.samples = samples
        self.torch = torch.Generator().manual_seed(0)
        self.transforms = [SimpleNamespace(numpy=np.random.default_rng(0)), random.Random(0)]
        self.legacy = {"numpy": np.random.RandomState(0)}

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        numbers = torch.full((8,), float(index))
        draws: dict[str, Callable[[], float]] = {
            "torch": lambda: float(torch.rand((), generator=self.torch)),
            "numpy": lambda: float(self.transforms[0].numpy.random()),  # type: ignore[attr-defined]
            "random": lambda: self.transforms[1].random(),  # type: ignore[attr-defined]
            "legacy": lambda: float(self.legacy["numpy"].rand()),
            "global": lambda: float(torch.rand(())) + random.random() + float(np.random.rand()),
            "time": time.monotonic,
            "own": lambda: float(np.random.default_rng().random()),
            "rank": lambda: float(os.environ.get("RANK", 0)),
            "none": lambda: 0.0,
        }
        return numbers + draws[self.how](), numbers.sum()[None]


class Sets(Toy):
    """Has any training set."""

    def __init__(self, train: Any):
        super().__init__()
        self.train = train

    def build_data(self) -> Splits:
        return Splits(self.train, [], [])


KEPT = {
    "torch": "Keeps.torch",
    "numpy": "Keeps.transforms[0].numpy",
    "random": "Keeps.transforms[1]",
    "legacy": "Keeps.legacy['numpy']",
}


@pytest.mark.parametrize("how", [*KEPT, "global", "none", "time"])
def test_a_generator_of_its_own_is_reported(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = Keeps(how)
    before = [each.state() for each in own_generators(data)]
    assert len(before) == 4
    TrainerDDP(0, config(tmp_path), Sets(data)).prepare_dataloaders()
    if how in KEPT:
        assert f"build_data's train draws from {KEPT[how]}, its own generator" in caplog.text
    else:
        assert "its own generator" not in caplog.text
    assert [each.state() for each in own_generators(data)] == before, (
        "training draws what it would have drawn"
    )


def test_nor_is_one_in_a_part_of_a_set_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for on in (True, False):
        task = Sets(Subset(Keeps("torch"), range(20)))
        TrainerDDP(0, config(tmp_path, check_first_step=on, num_workers=2), task).prepare_dataloaders()
        assert ("Subset.dataset.torch, its own generator" in caplog.text) == on
        caplog.clear()


def test_generators_are_restored() -> None:
    data = Keeps("none")
    with drawing(data) as drew:
        random.random()
        data.torch.manual_seed(7)
    assert drew == ["Keeps.torch"]
    assert data.torch.initial_seed() == 0


def test_a_set_that_cannot_be_read_is_left_for_training_to_report(tmp_path: Path) -> None:
    class Broken(Keeps):
        def __getitem__(self, index: int) -> Any:
            raise OSError("no such sample")

    loaders = TrainerDDP(0, config(tmp_path), Sets(Broken("none"))).prepare_dataloaders()
    assert loaders[0].pair is None
    with pytest.raises(OSError, match="no such sample"):
        next(loaders[0].groups(0, 0))


# --- Sets and streams that differ between ranks ---------------------------------------------------


class Stream(IterableDataset[Any]):
    """The numbers below 200; `how` says what each rank gets."""

    def __init__(self, how: str):
        self.how = how
        self.rng = random.Random(0)

    def __iter__(self) -> Iterator[Any]:
        rank, size = RankEnv.detect().rank, RankEnv.detect().world_size
        numbers = list(range(200))
        if self.how in ("by rank", "sharded by rank"):
            numbers = numbers[rank::size]
        elif self.how == "shuffled":
            random.Random(rank).shuffle(numbers)
        elif self.how == "seeded":
            random.Random(0).shuffle(numbers)
        for number in numbers:
            noise = {
                "noise": lambda: torch.randn(8),
                "noise of its own": lambda: torch.full((8,), random.SystemRandom().random()),
                "a generator": lambda: torch.full((8,), self.rng.random()),
            }.get(self.how, lambda: torch.zeros(8))()
            yield torch.full((8,), float(number)) + noise, torch.zeros(1)


class Sharded(Stream):
    def shard(self, num_shards: int, index: int) -> Any:
        whole = list(iter(self))[index::num_shards]
        return FixedOrder(whole)


class FixedOrder(IterableDataset[Any]):
    def __init__(self, elements: list[Any]):
        self.elements = elements

    def __iter__(self) -> Iterator[Any]:
        return iter(self.elements)


def shuffled(seed: int | None) -> Any:
    numbers = torch.arange(40.0)[:, None].expand(40, 8).clone()
    return TensorDataset(numbers[np.random.default_rng(seed).permutation(40)], torch.zeros(40, 1))


SETS: dict[str, Callable[[], Any]] = {
    "unseeded": lambda: shuffled(None),
    "by rank": lambda: Keeps("rank"),
    "seeded": lambda: shuffled(0),
    "plain": lambda: Keeps("none"),
    "global": lambda: Keeps("global"),
    "own": lambda: Keeps("own"),
    "time": lambda: Keeps("time"),
    "its generator": lambda: Keeps("torch"),
    "stream": lambda: Stream("plain"),
    "stream, seeded": lambda: Stream("seeded"),
    "stream, noise": lambda: Stream("noise"),
    "stream, noise of its own": lambda: Stream("noise of its own"),
    "stream by rank": lambda: Stream("by rank"),
    "stream, shuffled": lambda: Stream("shuffled"),
    "shards": lambda: Sharded("plain"),
    "shards by rank": lambda: Sharded("sharded by rank"),
}

WRONG = {
    "unseeded": "of build_data's train: has ",
    "by rank": "sample 0 of build_data's train: has numbers",
    "stream by rank": "element 0 of the training set Stream: has numbers",
    "stream, shuffled": "element 0 of the training set Stream",
    "shards by rank": "element 0 of the training set Sharded",
}


def said_of(folder: Path, names: list[str], workers: int) -> dict[str, str]:
    me = met()
    found = {}
    for name in names:
        fields = config(folder / name, num_steps=2, num_epochs=None, num_workers=workers)
        try:
            train = TrainerDDP(me.rank, fields, Sets(SETS[name]())).prepare_dataloaders()[0]
            next(train.groups(0, 0))
            found[name] = ""
        except ConfigError as error:
            found[name] = str(error)
        if dist.is_initialized():
            dist.barrier()
    cleanup_ddp()
    return found


class Drifts(Dataset[Any]):
    """Whose samples are other each time by less than rounding, as unseeded noise can be by chance."""

    reads = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        self.reads += 1
        return torch.full((4,), 1 + 1e-6 * self.reads, dtype=torch.float64)


def test_a_sample_that_is_nearly_the_same_again_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: dict[str, Mapping[int, Content]] = {}
    monkeypatch.setattr(
        "castoff.trainers.data.probing.agree_on_samples", lambda mine, context: compared.update(mine)
    )
    fields = config(tmp_path, num_steps=1, num_epochs=None)
    TrainerDDP(0, fields, Sets(Drifts())).prepare_dataloaders()
    assert compared["train"] == {}
    TrainerDDP(0, fields, Sets(Keeps("none"))).prepare_dataloaders()
    assert len(compared["train"]) == 4


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(
    ("world_size", "workers"), [(2, 0), pytest.param(2, 2, marks=pytest.mark.long), (3, 0)]
)
def test_what_differs_between_ranks_is_reported(world_size: int, workers: int, tmp_path: Path) -> None:
    names = list(SETS) if world_size == 2 else [*WRONG, "plain", "stream"]
    answers = run(said_of, tmp_path / "out", names, workers, folder=tmp_path / "ranks", world_size=world_size)
    for name in names:
        said = [answer[name] for answer in answers]
        assert set(said) == {said[0]}, "all ranks end with the same words"
        if name in WRONG:
            assert WRONG[name] in said[0], name
            assert " on rank 1, but " in said[0] and " on rank 0" in said[0]
            assert ("2 ranks differ from rank 0" in said[0]) == (world_size == 3)
        else:
            assert said[0] == "", name
    by_rank = answers[0]["by rank"]
    assert "samples that were compared are different" in by_rank and by_rank.count("build_data's") == 1
    assert "Seed everything that shuffles or draws in build_data" in answers[0]["unseeded"]
    assert "distributes them itself" in answers[0]["stream by rank"]


def test_a_stream_of_one_rank(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = said_of(tmp_path, ["stream by rank", "stream, shuffled", "shards by rank"], 0)
        assert set(found.values()) == {""}
        assert "its own generator" not in caplog.text
        fields = config(tmp_path / "kept", num_steps=2, num_epochs=None)
        train = TrainerDDP(0, fields, Sets(Stream("a generator"))).prepare_dataloaders()[0]
        next(train.groups(0, 0))
    assert "build_data's train draws from Stream.rng, its own generator" in caplog.text
