"""Restores the model, the task and the random generators after a look at them."""

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
    """Restore, at the end of this context, the weights, buffers and the task's tensors, the attributes of the
    modules and the task, and the random generators.

    Contents of a task's lists and other objects are not restored.
    """
    own_tensors = [var for var in vars(task).values() if isinstance(var, Tensor)]
    tensors = [
        (each, version_of(each), each.detach().clone()) for each in (*model.parameters(), *own_tensors)
    ]
    # All buffers are restored: BatchNorm, like `.data`, changes tensors without changing their version.
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    attributes = [(vars(owner), _copied(vars(owner))) for owner in (*model.modules(), task)]
    with undisturbed(), drawing(task):
        try:
            yield
        finally:
            for owner, before in attributes:
                _put_back(owner, before)
            with torch.no_grad():
                for tensor, version, values in tensors:
                    if version_of(tensor) != version:
                        tensor.copy_(values)
                for tensor, values in buffers:
                    tensor.copy_(values)


_OWN = ("_parameters", "_buffers", "_modules")
"""The attributes of a module that hold its parameters, buffers and submodules."""


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    registered = {name: dict(each) for name in _OWN if isinstance(each := attributes.get(name), dict)}
    return {**attributes, **registered}


def _put_back(attributes: dict[str, Any], before: dict[str, Any]) -> None:
    for name in _OWN:
        if isinstance(registered := attributes.get(name), dict):
            registered.clear()
            registered.update(before[name])
            before = {**before, name: registered}
    attributes.clear()
    attributes.update(before)
