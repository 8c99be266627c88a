"""Activation checkpointing: modules that compute intermediate results twice in place of keeping them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from castoff.trainers.optimization.module_names import named

FIELD = "training.activation_checkpointing"


def checkpoint_activations(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let the modules that the patterns describe compute their intermediate results again.

    The names of parameters stay the same, unlike with torch's CheckpointWrapper.

    Raises:
        ConfigError: a pattern describes no module.
    """
    for _, module in named(model, patterns, FIELD):
        vars(module)["forward"] = _Again(module)


class _Again:
    """A module's forward pass, which the backward pass repeats with the same random numbers.

    It is an object, not a function, so that a copy of the module has one that calls the copy.
    """

    def __init__(self, module: nn.Module):
        self._module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module
        forward = type(module).forward
        if not (module.training and torch.is_grad_enabled()):
            return forward(module, *args, **kwargs)
        return checkpoint(forward, module, *args, use_reentrant=False, context_fn=self._contexts, **kwargs)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _buffers_kept(self._module)


@contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """A context that changes no buffer: BatchNorm would count the same samples twice."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, values in before:
            buffer.data.copy_(values)  # unlike copy_, it does not count as a change of what autograd has kept
