"""Runs a program for a check, then restores the model, the task and random states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from castoff.trainers.distributed.private_torch import version_of
from castoff.trainers.distributed.randomness import undisturbed
from castoff.trainers.task import Task
from castoff.trainers.task.own_generators import drawing


@contextmanager
def untouched(model: nn.Module, task: Task) -> Iterator[None]:
    """Afterwards weights, buffers and the task's own tensors hold what they held, the model's parts and the
    task have their attributes again, and generators stand where they stood.

    What a task keeps in lists and other objects is left as the look has made it.
    """
    own = [var for var in vars(task).values() if isinstance(var, Tensor)]
    tensors = [(each, version_of(each), each.detach().clone()) for each in (*model.parameters(), *own)]
    # Batch norms do not move the version of their buffers, and `.data` none.
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    attributes = [(vars(each), _copied(vars(each))) for each in (*model.modules(), task)]
    with undisturbed(), drawing(task):
        try:
            yield
        finally:
            for each, before in attributes:
                _put_back(each, before)
            with torch.no_grad():
                for tensor, version, values in tensors:
                    if version_of(tensor) != version:
                        tensor.copy_(values)
                for tensor, values in buffers:
                    tensor.copy_(values)


_OWN = ("_parameters", "_buffers", "_modules")
"""Where a module keeps what is assigned to it."""


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    own = {name: dict(each) for name in _OWN if isinstance(each := attributes.get(name), dict)}
    return {**attributes, **own}


def _put_back(attributes: dict[str, Any], before: dict[str, Any]) -> None:
    for name in _OWN:
        if isinstance(own := attributes.get(name), dict):
            own.clear()
            own.update(before[name])
            before = {**before, name: own}
    attributes.clear()
    attributes.update(before)
