"""A model of one's own in the trainer: handwritten digits, by a network of one hidden layer.

python examples/own_model.py                        in this process
castoff launch -n 2 -- python examples/own_model.py on two ranks; torchrun does as well
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from trainers import Config, Loss, Splits, Task, split, train


class Digits(Task):
    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))

    def build_data(self) -> Splits:
        pixels, digits = load_digits(return_X_y=True)
        images = torch.tensor(pixels, dtype=torch.float32) / 16
        return Splits(*split(TensorDataset(images, torch.tensor(digits)), [0.7, 0.1, 0.2], seed=0))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        images, labels = batch
        scores = model(images)
        right = (scores.argmax(1) == labels).sum()
        total = nn.functional.cross_entropy(scores, labels, reduction="sum")
        return Loss(total, metrics={"accuracy": right})


if __name__ == "__main__":
    trained = train(Config.load("examples/own_model.yaml"), Digits())
    if trained.measures:
        print(f"test accuracy {trained.measures['accuracy']:.4f}")
