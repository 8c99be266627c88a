"""Streams: each element once, the same when resumed, and an end that all ranks come to together."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.loaders import Group, TrainingLoader, training_loader
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.task import Splits
from tests import patience
from tests.cases import others_long
from tests.trainers.toys import Toy, config, digest, run

CPU = torch.device("cpu")


class Plain(IterableDataset[Any]):
    """Numbers, shuffled by a global generator, each with what it drew."""

    def __init__(self, length: int = 61):
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        for number in torch.randperm(self.length).tolist():
            yield number, float(torch.rand(())), random.random()


class Keeping(IterableDataset[Any]):
    """Knows where it is."""

    def __init__(self, length: int = 61):
        self.length = length
        self.at = 0
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        while self.at < self.length:
            self.at += 1
            self.given += 1
            yield self.at - 1, float(torch.rand(())), random.random()
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "tensor": torch.tensor(self.at)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert int(state["tensor"]) == state["at"]
        self.at = state["at"]


class Sharding(Keeping):
    """Divides itself, unevenly."""

    def __init__(self, length: int = 61, first: int = 0, step: int = 1, less: int = 0):
        super().__init__(length)
        self.first, self.step, self.less = first, step, less

    def shard(self, num_shards: int, index: int) -> Sharding:
        return Sharding(self.length - self.less * index, index, num_shards)

    def __iter__(self) -> Iterator[Any]:
        for number, *drawn in super().__iter__():
            if number % self.step == self.first:
                yield number, *drawn


class Guided(IterableDataset[Any]):
    """Deals itself out over workers, as torch's guide has it."""

    def __iter__(self) -> Iterator[Any]:
        given = get_worker_info()
        first, step = (0, 1) if given is None else (given.id, given.num_workers)
        yield from ((number,) for number in range(first, 61, step))


class Epochs(IterableDataset[Any]):
    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        yield from ((self.epoch,) for _ in range(8))


def loaded(dataset: Any, context: RankContext | None = None, size: int = 3, **given: Any) -> TrainingLoader:
    settings = Training(path="", num_epochs=1, batch_size=size, optimizer_type=None, **given)
    return training_loader(dataset, settings, context or RankContext(0, 1, CPU), list)


def samples(group: Group) -> list[Any]:
    return [sample for micro in group.micros for sample in micro.data]


def everything(dataset: Any, world_size: int, epoch: int = 0, **given: Any) -> list[Any]:
    """What all ranks see; each without asking the others."""
    loaders = [loaded(dataset, RankContext(rank, world_size, CPU), **given) for rank in range(world_size)]
    return [sample for each in loaders for group in each.groups(epoch, 0) for sample in samples(group)]


@pytest.mark.parametrize("kind", [Plain, Keeping, Sharding])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_element_once(kind: Any, workers: int) -> None:
    """Also what a set shuffles itself; and each draws the same, whoever takes it."""
    alone = everything(kind(), 1, size=1)
    assert sorted(number for number, *_ in alone) == list(range(61))
    assert len({drawn for _, *drawn in map(tuple, alone) for drawn in drawn}) == 122
    found = everything(kind(), 2, size=1, num_workers=workers)
    if kind is Sharding:  # it numbers the elements of a part itself
        assert sorted(number for number, *_ in found) == list(range(61))
    else:
        assert sorted(found) == sorted(alone)
    assert everything(kind(), 1, 1) != alone


def test_a_set_that_deals_over_workers_is_seen_whole() -> None:
    assert sorted(everything(Guided(), 2, size=1, num_workers=2)) == [(number,) for number in range(61)]


def test_a_set_is_passed_its_epoch() -> None:
    assert everything(Epochs(), 1, 3) == [(3,)] * 8


def test_a_last_batch_of_one_is_left_out() -> None:
    """61 elements in batches of three: BatchNorm could not train on the last one."""
    sizes = [[micro.samples for micro in g.micros] for g in loaded(Plain(), size=3).groups(0, 0)]
    assert sizes == [[3]] * 20
    sizes = [[micro.samples for micro in g.micros] for g in loaded(Plain(62), size=3).groups(0, 0)]
    assert sizes == [[3]] * 20 + [[2]]
    whole = loaded(Plain(62), size=3, drop_last=True, gradient_accumulation_steps=3)
    assert [[micro.samples for micro in group.micros] for group in whole.groups(0, 0)] == [[3] * 3] * 6
    assert [micro.last for micro in next(whole.groups(0, 0)).micros] == [False, False, True]


@pytest.mark.parametrize("kind", [Plain, Keeping, Sharding])
@pytest.mark.parametrize("workers", others_long([0, 2], [2]))
def test_a_stream_resumes_at_every_step(kind: Any, workers: int) -> None:
    """From every step, on each of two ranks, as if nothing had been: also where a step was not done."""
    given: dict[str, Any] = {"num_workers": workers, "gradient_accumulation_steps": 2}
    for rank in range(2):
        context = RankContext(rank, 2, CPU)
        first = loaded(kind(), context, **given)
        whole, states = [], []
        for group in first.groups(4, 0):
            whole.append(group)
            states.append(stored(first.state_dict()))
        assert len(whole) > 4
        last = len(whole) - 1
        for saved, consumed in ((1, 1), (last, last - 1)):
            again = loaded(kind(), context, **given)
            again.load_state_dict(states[saved - 1])
            assert list(again.groups(4, consumed)) == whole[consumed:]
        assert next(again.groups(5, 0)) == next(loaded(kind(), context, **given).groups(5, 0)) != whole[0]


def test_a_set_that_knows_where_it_is_skips_nothing() -> None:
    first, dataset = loaded(Keeping()), Keeping()
    for group in first.groups(0, 0):
        if group.micros[0].data[0][0] >= 51:
            break
    again = loaded(dataset)
    again.load_state_dict(stored(first.state_dict()))
    rest = list(again.groups(0, 18))
    assert [number for group in rest for number, *_ in samples(group)] == list(range(54, 60))
    assert dataset.given == 7


@pytest.mark.parametrize("kind", [Plain, Keeping, Sharding])
def test_an_epoch_begins_at_the_beginning(kind: Any) -> None:
    """Also where another was left, and in the process that did so."""
    loader = loaded(kind())
    whole = list(loader.groups(0, 0))
    next(loader.groups(1, 0))
    assert list(loader.groups(0, 0)) == whole


def stored(state: dict[str, Any]) -> Any:
    """As a checkpoint gives it back: plain containers and tensors."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_stream_whose_position_is_unknown_cannot_resume() -> None:
    first = loaded(Plain(), RankContext(0, 2, CPU), num_workers=2)
    next(first.groups(0, 0))
    state = first.state_dict()
    with pytest.raises(ConfigError, match=r"there are 3 ranks, .* made with 2, .* use 2, or start over"):
        loaded(Plain(), RankContext(0, 3, CPU), num_workers=2).load_state_dict(state)
    with pytest.raises(ConfigError, match=r"training\.num_workers: there are 1 workers, .* made with 2"):
        loaded(Plain(), RankContext(0, 2, CPU)).load_state_dict(state)
    with pytest.raises(ConfigError, match="the position in the training set after 3 steps"):
        next(first.groups(0, 3))
    assert first.steps is None


def test_too_little() -> None:
    with pytest.raises(ConfigError, match=r"Plain has too few samples .*: 1 ranks x 2 workers read 2 parts"):
        next(loaded(Plain(2), num_workers=2).groups(0, 0))


ENDS: list[tuple[dict[str, Any], list[list[int]]]] = [
    ({}, [[2]] * 8),
    ({"num_workers": 1, "gradient_accumulation_steps": 3}, [[2] * 3] * 2 + [[2] * 2]),
    ({"drop_last": True, "gradient_accumulation_steps": 3}, [[2] * 3] * 2),
]


def to_the_end() -> tuple[list[list[list[int]]], str]:
    """The sizes of this rank's micro-batches, for each of ENDS; what is said of a rank that has nothing."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu", timeout=patience.SECONDS)
    found = []
    for given, _ in ENDS:
        first, states, groups = loaded(Sharding(44, less=12), place, size=2, **given), [], []
        for group in first.groups(0, 0):
            groups.append(group)
            states.append(first.state_dict())
        found.append([[micro.samples for micro in group.micros] for group in groups])
        assert [group.samples for group in groups] == [2 * sum(sizes) for sizes in found[-1]]
        for done in (1, len(groups)):
            again = loaded(Sharding(44, less=12), place, size=2, **given)
            again.load_state_dict(states[done - 1])
            assert again.is_over(done) == (done == len(groups))
            assert list(again.groups(0, done)) == groups[done:]
    stated = ""
    try:
        next(loaded(Sharding(3, less=3), place).groups(0, 0))
    except ConfigError as error:
        stated = str(error)
    cleanup_ddp()
    return found, stated


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("for_real")
def test_the_end_is_agreed(tmp_path: Path) -> None:
    """One rank has eight batches, the other eleven; nobody begins a step that the other cannot make."""
    for found, given in run(to_the_end, folder=tmp_path, world_size=2):
        assert found == [sizes for _, sizes in ENDS]
        assert "has too few samples for every rank to take one step" in given


class Sums(IterableDataset[Any]):
    """What a Toy learns."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(150):
            numbers = torch.randn(8)
            yield numbers, numbers.sum(0, keepdim=True)


class Streamed(Toy):
    def build_data(self) -> Splits:
        return super().build_data()._replace(train=Sums())


def trained(folder: Path, workers: int, *steps: int) -> tuple[str, int, int]:
    """A training that is ended after so many steps, and again."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu", timeout=patience.SECONDS)
    given: dict[str, Any] = {"gradient_accumulation_steps": 2, "num_epochs": None, "run": "one"}
    try:
        for number in steps:
            fields = config(folder, num_steps=number, num_workers=workers, batch_size=4, **given)
            trainer = TrainerDDP(me.rank, fields, Streamed())
            trainer.run_training(*trainer.prepare_dataloaders()[:2])
        return digest(trainer.model), trainer.step, trainer.epoch
    finally:
        cleanup_ddp()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(("world_size", "workers", "epoch"), [(2, 2, 1), (3, 0, 1)])
def test_a_training_on_a_stream_resumes_bit_for_bit(
    world_size: int, workers: int, epoch: int, tmp_path: Path
) -> None:
    """Bit for bit, over the end of an epoch too."""
    whole = run(trained, tmp_path / "a", workers, 11, folder=tmp_path / "1", world_size=world_size)
    parts = run(trained, tmp_path / "b", workers, 4, 5, 11, folder=tmp_path / "2", world_size=world_size)
    assert parts == whole == [(whole[0][0], 11, epoch)] * world_size


def streamed(folder: Path, num_steps: int, **given: Any) -> TrainerDDP:
    """A training of so many steps, in this process; 150 elements are 10 steps of an epoch."""
    fields = config(folder, num_steps=num_steps, num_epochs=None, batch_size=15, run="one", **given)
    trainer = TrainerDDP(0, fields, Streamed())
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


def test_the_last_step_may_end_an_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its means are reported, as on a set with a length; also by a resumed run to there, or from there."""
    caplog.set_level("INFO")
    whole = streamed(tmp_path / "whole", 10)
    assert (whole.step, whole.epoch, len(whole.train_data), len(whole.val_data)) == (10, 1, 1, 1)
    parts = [streamed(tmp_path / "parts", steps) for steps in (9, 9, 10, 10)]
    assert [(each.step, each.epoch) for each in parts] == [(9, 0), (9, 0), (10, 1), (10, 1)]
    assert parts[-1].train_data == whole.train_data
    assert caplog.text.count("Nothing is left to train") == 2


@pytest.mark.long
def test_an_epoch_that_ends_in_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint was made before the epoch was reported; from there it is, and nothing is trained."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TrainerDDP, "_end_epoch", killed)
        with pytest.raises(KeyboardInterrupt):
            streamed(tmp_path, 10, checkpoint_every_steps=10)
    again = streamed(tmp_path, 10)
    assert (again.step, again.epoch, len(again.train_data)) == (10, 1, 1)


def test_a_step_that_no_rank_can_make_whole() -> None:
    with pytest.raises(ConfigError, match=r"too few samples .* to take one step.*, or leave drop_last out"):
        next(loaded(Plain(6), gradient_accumulation_steps=3, drop_last=True).groups(0, 0))
