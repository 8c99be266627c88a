"""Runs a network on a few made-up graphs, before there are data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Inside, a model can be called and is the same afterwards, as are the random generators."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, was in training.items():
            module.training = was
