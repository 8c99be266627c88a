"""A custom model in the trainer: it predicts on which of a spiral's three arms a point lies.

python examples/own_model.py                        in this process
castoff launch -n 2 -- python examples/own_model.py on two ranks; torchrun works, too
"""

import sys
from math import pi
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from castoff.trainers import Loss, Splits, Task, split, train


class Spirals(Task):
    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def build_data(self) -> Splits:
        arms = torch.arange(1800) % 3
        radius = torch.rand(1800).sqrt()
        angle = 5 * radius + 2 * pi / 3 * arms + 0.25 * torch.randn(1800)
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        return Splits(*split(TensorDataset(points, arms), [0.7, 0.1, 0.2], seed=0))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        points, arms = batch
        scores = model(points)
        right = (scores.argmax(1) == arms).sum()
        total = nn.functional.cross_entropy(scores, arms, reduction="sum")
        return Loss(total, metrics={"accuracy": right})


if __name__ == "__main__":
    trained = train("examples/own_model.yaml", Spirals(), sys.argv[1:])
    if trained.metrics:
        print(f"test accuracy {trained.metrics['accuracy']:.4f}")
