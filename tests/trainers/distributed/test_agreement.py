"""All ranks are given the same, and whoever was not is named before anybody waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.errors import DistributedError
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Splits
from tests.trainers.toys import Toy, config, run


class Lasting(Toy):
    """Says of its training samples, if anything, that all are as long."""

    def __init__(self, samples: int, length: int | None):
        super().__init__(samples)
        self.length = length

    def build_data(self) -> Splits:
        splits = super().build_data()
        if self.length is not None:
            splits.train.lengths = [self.length] * len(splits.train)
        return splits


def refused(
    data: dict[str, Any],
    of_rank: dict[int, dict[str, Any]],
    samples: dict[int, int],
    lengths: dict[int, int],
) -> str:
    """The error of a rank whose fields and data are others than rank 0's."""
    me = RankEnv.detect()
    data["training"] |= of_rank.get(me.rank, {})
    initialize_ddp(me.rank, me.world_size, backend="gloo", device="cpu")
    try:
        trainer = TrainerDDP(me.rank, data, Lasting(samples.get(me.rank, 203), lengths.get(me.rank)))
        trainer.prepare_dataloaders()
    except ConfigError as error:
        return str(error)
    finally:
        cleanup_ddp()
    return ""


@pytest.mark.parametrize(
    ("of_rank", "samples", "lengths", "says"),
    [
        ({}, {}, {0: 5, 1: 5, 2: 5}, ""),
        ({0: {"run": "a"}, 1: {"run": "b"}}, {}, {}, ""),  # rank 0's alone counts
        (
            {1: {"num_epochs": 9}, 2: {"num_epochs": 9}},
            {},
            {},
            "training.num_epochs: is 9 on rank 1, but 2 on rank 0; 2 ranks differ",
        ),
        (
            {2: {"clip_grad_norm": 2.5}},
            {},
            {},
            "training.clip_grad_norm: is 2.5 on rank 2, but null on rank 0",
        ),
        ({}, {1: 211}, {}, "samples of build_data's train: is "),
        ({}, {}, {0: 5, 1: 5, 2: 6}, "SHA-256 of the lengths of build_data's train: is ; on rank 2, but "),
    ],
)
def test_a_rank_that_was_given_another_is_named_on_all(
    of_rank: dict[int, dict[str, Any]],
    samples: dict[int, int],
    lengths: dict[int, int],
    says: str,
    tmp_path: Path,
) -> None:
    data = config(tmp_path / "runs", num_epochs=2)
    given = run(refused, data, of_rank, samples, lengths, folder=tmp_path, world_size=3)
    assert len(set(given)) == 1
    if says:
        for part in says.split("; "):
            assert part in given[0]
    else:
        assert given[0] == ""


class Idle(nn.Module):
    """Has a part that its output does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(8, 1), nn.Linear(2, 2)

    def forward(self, numbers: Tensor) -> Tensor:
        found: Tensor = self.used(numbers)
        return found


class IdleToy(Toy):
    def build_model(self) -> Any:
        return Idle()


def trained(data: dict[str, Any]) -> str:
    """What training says of a model with an idle part."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, backend="gloo", device="cpu")
    try:
        trainer = TrainerDDP(me.rank, data, IdleToy())
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    except ConfigError as error:
        return str(error)
    finally:
        cleanup_ddp()
    return ""


def test_parameters_without_a_gradient_are_named(tmp_path: Path) -> None:
    data = config(tmp_path / "runs", num_epochs=1)
    for said in run(trained, data, folder=tmp_path / "a", world_size=2):
        assert "model: the loss of step 1 does not depend on idle.weight, idle.bias" in said
        assert "parallel.find_unused_parameters: true" in said
    data["parallel"] = {"find_unused_parameters": True}
    assert run(trained, data, folder=tmp_path / "b", world_size=2) == ["", ""]


class Local(Toy):
    volatile_arguments = ("folder",)

    def __init__(self, folder: str, samples: int):
        super().__init__(samples)


def of_its_own(data: dict[str, Any], arguments: list[dict[str, Any]]) -> str:
    """The error of a rank whose task's arguments are its own."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, backend="gloo", device="cpu")
    try:
        TrainerDDP(me.rank, {**data, "task": Local, "task_kwargs": arguments[me.rank]})
    except ConfigError as error:
        return str(error)
    finally:
        cleanup_ddp()
    return ""


def test_arguments_that_are_not_what_is_trained_may_be_each_ranks_own(tmp_path: Path) -> None:
    arguments = [{"folder": "/node1/x", "samples": 203}, {"folder": "/node2/y", "samples": 203}]
    given = run(of_its_own, config(tmp_path), arguments, folder=tmp_path / "a", world_size=2)
    assert given == ["", ""]
    arguments[1]["samples"] = 204
    for said in run(of_its_own, config(tmp_path), arguments, folder=tmp_path / "b", world_size=2):
        assert "task_kwargs.samples: is 204 on rank 1, but 203 on rank 0" in said
        assert "folder" not in said


def test_a_backend_that_this_torch_has_not() -> None:
    with pytest.raises(DistributedError, match=r"parallel\.backend: is smoke, but .* has no smoke; leave it"):
        initialize_ddp(0, 1, backend="smoke", device="cpu")
