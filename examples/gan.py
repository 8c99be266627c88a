"""Two optimizers that take turns: a GAN whose generator learns to place points on a ring.

python examples/gan.py                        in this process
castoff launch -n 2 -- python examples/gan.py on two ranks; torchrun works, too
"""

import sys
from math import pi
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.optim import Adam, Optimizer
from torch.utils.data import TensorDataset

from castoff.trainers import Loss, Splits, Task, split, train


def layers(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
                         nn.Linear(64, outputs))  # fmt: skip


class Ring(Task):
    turns = ("discriminator", "generator")

    def build_model(self) -> nn.ModuleDict:
        return nn.ModuleDict({"generator": layers(4, 2), "discriminator": layers(2, 1)})

    def build_data(self) -> Splits:
        angles = 2 * pi * torch.rand(2000)
        points = torch.stack([angles.cos(), angles.sin()], dim=1) + 0.02 * torch.randn(2000, 2)
        return Splits(*split(TensorDataset(points), [0.9, 0.1], seed=0))

    def optimizers(self, model: Any) -> dict[str, Optimizer]:
        return {turn: Adam(model[turn].parameters(), lr=1e-3, betas=(0.5, 0.999)) for turn in self.turns}

    def loss(self, model: Any, batch: Any) -> Loss:
        (real,) = batch
        fake = model["generator"](torch.randn(len(real), 4, device=real.device))
        judged = model["discriminator"](fake)
        if self.state.turn == "generator":
            radius = fake.norm(dim=1)
            return Loss(softplus(-judged).sum(), metrics={"radius": radius.sum()})
        return Loss((softplus(judged) + softplus(-model["discriminator"](real))).sum())


if __name__ == "__main__":
    trained = train("examples/gan.yaml", Ring(), sys.argv[1:])
