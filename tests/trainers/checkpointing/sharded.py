"""A small training with torch's own `fully_shard` or without, whose checkpoints the tests write and read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints
from castoff.trainers.checkpointing.sharded_states import training_for, weights_for
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.optimizer import CONFIGURED, load_optimizer


class Tied(nn.Module):
    """Rows that no number of ranks divides, a buffer, and a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(7, 5, bias=False)
        self.last = nn.Linear(7, 5, bias=False)
        self.last.weight = self.first.weight
        self.norm = nn.BatchNorm1d(5, momentum=None)
        self.head = nn.Linear(5, 1)

    def forward(self, numbers: Tensor) -> Tensor:
        made: Tensor = self.head(self.norm(self.first(numbers) + self.last(numbers).relu()))
        return made


class Training(NamedTuple):
    """One rank's."""

    context: RankContext
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def step(self) -> float:
        """The same samples on every rank, whose gradients are therefore those of one."""
        numbers = torch.arange(28.0).reshape(4, 7).sin()
        self.optimizer.zero_grad()
        loss = (self.model(numbers) - numbers.sum(1, keepdim=True)).square().mean()
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def parts(self, step: int) -> dict[str, dict[str, Any]]:
        """What a checkpoint holds."""
        states = {"step": step, "engine": {"optimizer": self.optimizer.state_dict()}}
        return {"model": self.model.state_dict(), "training": states}

    def save(self, kept: Checkpoints, step: int) -> None:
        """And wait until it is durable."""
        if self.context.is_main or any(isinstance(each, DTensor) for each in self.model.parameters()):
            kept.save(step, self.parts(step))
        kept.wait()

    def load(self, path: Path) -> None:
        """All of it."""
        self.model.load_state_dict(weights_for(self.model, path, "model"))
        states = training_for(self.optimizer, path)
        assert load_optimizer(self.optimizer, states["engine"]["optimizer"]) == []

    def digests(self) -> list[str]:
        """Of the weights and of the optimizer's state, as whole tensors."""
        moments = self.optimizer.state_dict()["state"]
        return [digest(self.model.state_dict()), digest({f"{n}": each for n, each in moments.items()})]


def begin(kind: str, optimizer: str = "AdamW", seed: int = 0) -> Training:
    """Of a `kind`: ddp, whose ranks all hold everything, or fsdp."""
    me = RankEnv.detect()
    context = initialize_ddp(me.rank, me.world_size, device="cpu")
    torch.manual_seed(seed)
    model = Tied()
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (me.world_size,))
        for each in (model.head, model):
            fully_shard(each, mesh=mesh).set_force_sum_reduction_for_comms(True)  # as castoff's trainer does
    groups: list[Any] = [
        {"params": list(model.head.parameters()), "weight_decay": 0.1},
        {"params": [*model.first.parameters(), *model.norm.parameters()]},
    ]
    arguments = {"momentum": 0.9} if optimizer == "SGD" else {}
    made: torch.optim.Optimizer = getattr(torch.optim, optimizer)(groups, lr=0.1, **arguments)
    for group in made.param_groups:
        group[CONFIGURED] = {"lr": 0.1, "weight_decay": group["weight_decay"]}
    return Training(context, model, made)


def whole(value: Any) -> Any:
    """With sharded tensors put together."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def digest(states: Any) -> str:
    """All tensors of nested containers in one word."""
    made = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                made.update(str(key).encode())
                add(each)
        elif isinstance(value, Tensor):
            tensor = whole(value).detach().contiguous()
            made.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + tensor.numpy().tobytes())

    add(states)
    return made.hexdigest()


def end() -> None:
    """Leave the group."""
    cleanup_ddp()
