"""Modules that are frozen at first: what changes when, and resumed on either side of that step."""

from __future__ import annotations

import copy
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Loss
from castoff.trainers.task.training_state import TrainingState
from tests.trainers.optimization.test_turns import Adversaries
from tests.trainers.optimization.test_turns import trained as trained_in_turns
from tests.trainers.toys import Ranks, Toy, config, digest, run

UNTIL = 4


class Killed(BaseException):
    """Stands for SIGKILL: nothing is saved on the way out."""


class Watched(Toy):
    """Keeps the weights after each step; its two Linear are `0` and `3`."""

    def __init__(self, dies_at: int = 0):
        super().__init__(samples=60)
        self.dies_at = dies_at
        self.losses = 0
        self.after: list[dict[str, Tensor]] = []

    def build_model(self) -> nn.Module:
        self.model = super().build_model()
        return self.model

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if model.training:
            self.losses += 1
            if self.losses == self.dies_at:
                raise Killed
        return super().loss(model, batch)

    def on_step(self, state: TrainingState, metrics: Any) -> None:
        self.after.append(copy.deepcopy(self.model.state_dict()))


def trained(path: Path, task: Toy, *modules: str, until: int = UNTIL, **training: Any) -> TrainerDDP:
    freeze = [{"modules": list(modules or ["0"]), "until": until}]
    fields = {"num_epochs": 2, "checkpoint_every_steps": 1, "clip_grad_norm": 1.0, "freeze": freeze}
    trainer = TrainerDDP(RankEnv.detect().rank, config(path, **{**fields, **training}), task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


def test_frozen_weights_and_their_optimizer_stay_as_they_are(tmp_path: Path) -> None:
    task = Watched()
    trainer = trained(tmp_path, task, optimizer_kwargs={"lr": 0.01, "weight_decay": 0.1})
    frozen = [weights["0.weight"] for weights in task.after]
    free = [weights["3.weight"] for weights in task.after]
    same = [torch.equal(one, other) for one, other in itertools.pairwise(frozen)]
    assert same == [True] * (UNTIL - 1) + [False] * (len(frozen) - UNTIL)
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(free))
    steps = [float(each["step"]) for each in trainer.engine.optimizer.state_dict()["state"].values()]
    assert sorted(steps) == [12 - UNTIL, 12 - UNTIL, 12, 12]
    assert all(each.requires_grad for each in trainer.model.parameters())


def test_a_container_can_be_frozen(tmp_path: Path) -> None:
    class Listed(nn.Module):
        def __init__(self, layers: nn.Module):
            super().__init__()
            self.layers = layers
            self.held = nn.ModuleList([layers.get_submodule("0")])

        def forward(self, numbers: Tensor) -> Any:
            return self.layers(numbers)

    class Contained(Watched):
        def build_model(self) -> nn.Module:
            self.model = Listed(super().build_model())
            return self.model

    task = Contained()
    trained(tmp_path, task, "held")
    first = [weights["held.0.weight"] for weights in task.after]
    assert torch.equal(first[0], first[UNTIL - 1]) and not torch.equal(first[0], first[UNTIL])


@pytest.mark.parametrize("dies_at", [UNTIL - 1, UNTIL, UNTIL + 1, UNTIL + 2])
def test_a_killed_run_is_resumed_to_the_bit(dies_at: int, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", Watched())
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Watched(dies_at))
    resumed = trained(tmp_path / "killed", Watched())
    assert digest(resumed.model) == digest(whole.model)


def digested(path: Path, dies_at: int = 0) -> str:
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        trainer = trained(path, Watched(dies_at), batch_size=2, gradient_accumulation_steps=2)
    except Killed:
        os.kill(os.getpid(), signal.SIGKILL)
    cleanup_ddp()
    return digest(trainer.model)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("completed", [UNTIL - 1, UNTIL])
def test_also_on_several_ranks(completed: int, tmp_path: Path) -> None:
    whole = Ranks(tmp_path / "whole", 3)  # meanwhile
    whole.start(digested, tmp_path / "one")
    killed = Ranks(tmp_path / "killed", 3)
    killed.start(digested, tmp_path / "two", 2 * (completed + 1) + 1)
    assert -signal.SIGKILL in killed.end()
    resumed = run(digested, tmp_path / "two", folder=tmp_path / "resumed", world_size=3)
    assert resumed == whole.answers()
    assert len(set(resumed)) == 1


def test_an_optimizer_that_has_its_turn_may_be_frozen_in_part(tmp_path: Path) -> None:
    freeze = [{"modules": ["critic.0"], "until": 5}]
    trainer = trained_in_turns(tmp_path, Adversaries(), freeze=freeze)
    assert trainer.step == 8
    momenta = trainer.engine.optimizer.each["critic"].state  # type: ignore[attr-defined]
    assert len(momenta) == 4
    with pytest.raises(ConfigError, match=r"training\.freeze: freezes all that an optimizer trains"):
        trained_in_turns(tmp_path / "all", Adversaries(), freeze=[{"modules": ["critic"], "until": 5}])


def test_what_cannot_be_frozen_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"freeze\.0\.modules: 'encoder' is neither .* has \* \(2 of"):
        trained(tmp_path, Toy(), "encoder")
    with pytest.raises(ConfigError, match=r"training\.freeze: freezes all that an optimizer trains"):
        trained(tmp_path, Toy(), "Linear")


def test_what_stays_frozen_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path / "at_last", Toy(samples=60), until=11)
    says = "training.freeze.0.until: is 12, but the training has only 12 steps: 0 stay frozen to its end"
    assert says not in caplog.messages
    trained(tmp_path / "never", Toy(samples=60), until=12)
    assert says in caplog.messages
