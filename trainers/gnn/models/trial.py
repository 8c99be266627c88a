"""Runs a network on a few synthetic graphs, before there are data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """A context in which calling a model changes neither the model nor the random generators."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, was in training.items():
            module.training = was
