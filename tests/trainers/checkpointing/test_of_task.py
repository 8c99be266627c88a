"""What a task keeps is kept once, or of each rank where it is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import load_part
from castoff.trainers.checkpointing.of_task import _digest
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from tests.trainers.toys import Toy, config, run


class Drawing(Toy):
    """Keeps a generator of its own; `own`: each rank another."""

    def __init__(self, own: bool):
        super().__init__(64)
        rank = RankEnv.detect().rank if own else 0
        self.noise = torch.Generator().manual_seed(rank)
        self.drawn: list[float] = []

    def loss(self, model: Any, batch: Any) -> Any:
        if model.training:
            self.drawn.append(float(torch.rand((), generator=self.noise)))
        return super().loss(model, batch)

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self.noise.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noise.set_state(state["noise"])


def drawn(folder: Path, own: bool, epochs: list[int]) -> list[float]:
    """What the last of several trainings has drawn on this rank; each resumes from the one before."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    for each in epochs:
        task = Drawing(own)
        trainer = TrainerDDP(me.rank, config(folder, num_epochs=each, log_every=100), task)
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    cleanup_ddp()
    return task.drawn


@pytest.mark.usefixtures("for_real")
def test_each_rank_resumes_with_its_own(tmp_path: Path) -> None:
    found = {
        name: run(drawn, tmp_path / name, own, epochs, folder=tmp_path / f"ranks-{name}", world_size=2)
        for name, own, epochs in (
            ("resumed", True, [1, 2]),
            ("whole", True, [2]),
            ("shared", False, [1, 2]),
        )
    }
    for resumed, whole in zip(found["resumed"], found["whole"], strict=True):
        assert resumed == whole[len(whole) // 2 :]
    assert found["resumed"][0] != found["resumed"][1]
    assert found["shared"][0] == found["shared"][1]
    states = {
        name: load_part(tmp_path / name / "toy" / "checkpoints" / "latest", "training")["task"]
        for name in ("resumed", "shared")
    }
    assert len(states["resumed"]) == 2 and len(states["shared"]) == 1
    for name, refused in (("resumed", True), ("shared", False)):
        trainer = TrainerDDP(0, config(tmp_path / name, num_epochs=3, batch_size=16), Drawing(False))
        loaders = trainer.prepare_dataloaders()[:2]
        if refused:
            with pytest.raises(
                ConfigError, match=r"each of the checkpoint's 2 ranks a different state; use 2"
            ):
                trainer.run_training(*loaders)
        else:
            trainer.run_training(*loaders)
            assert trainer.epoch == 3


def number(state: Any) -> int:
    return int(_digest(state))


@pytest.mark.parametrize(
    "other",
    [
        {"a": 1, "b": torch.tensor([1.0, 2.0, 4.0])},
        {"a": 1, "b": torch.tensor([2.0, 1.0, 3.0])},
        {"a": 1, "b": torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)},
        {"a": 1, "b": torch.tensor([[1.0, 2.0, 3.0]])},
        {"a": 2, "b": torch.tensor([1.0, 2.0, 3.0])},
        {"a": [1], "b": torch.tensor([1.0, 2.0, 3.0])},
        {"c": 1, "b": torch.tensor([1.0, 2.0, 3.0])},
        {},
    ],
    ids=str,
)
def test_a_digest_tells_states_apart(other: Any) -> None:
    def one() -> dict[str, Any]:
        return {"a": 1, "b": torch.tensor([1.0, 2.0, 3.0])}

    assert number(one()) == number(one()) != number(other)


def test_a_digest_takes_all_that_a_checkpoint_keeps() -> None:
    several: list[Any] = ["text", None, b"x", {3, 1, 2}, float("nan"), torch.float16, torch.device("cpu")]
    sparse: Tensor = torch.eye(2).to_sparse()
    state = {"several": several, "sparse": sparse, "empty": torch.zeros(0), "true": torch.tensor(True)}
    assert number(state) == number(dict(state))
