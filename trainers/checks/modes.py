"""Checks that a model is in training mode: from_pretrained returns models in eval mode."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import FunctionType

from torch import nn

from castoff.trainers.configuration.fields import few

logger = logging.getLogger(__name__)


def warn_of_eval_mode(task: str, model: nn.Module) -> None:
    """Warn of parts of the model that train in eval mode, if the mode affects them."""
    parts = list(_in_eval_mode(model, "the model"))
    if parts:
        logger.warning(
            "%s.build_model leaves %s in eval mode, so it trains without dropout and with fixed batch "
            "norm statistics: from_pretrained() returns such models. Call model.train() before you "
            "return it; if eval mode is meant, freeze those parts with requires_grad_(False), or ignore "
            "this",
            task,
            few(parts),
        )


def _in_eval_mode(module: nn.Module, name: str) -> Iterator[str]:
    """Names of the outermost modules in eval mode that depend on the mode and are not completely frozen."""
    if not module.training:
        parameters = list(module.parameters())
        frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
        if not frozen and any(map(_has_modes, module.modules())):
            yield name
        return
    for part, child in module.named_children():
        yield from _in_eval_mode(child, part if name == "the model" else f"{name}.{part}")


def _has_modes(module: nn.Module) -> bool:
    """Whether a module's code reads `training`, and the mode has an effect."""
    # A dropout of 0 does nothing, and a norm without running statistics does not depend on the mode.
    idle = 0 in (getattr(module, "p", None), getattr(module, "dropout", None))
    if idle or not getattr(module, "track_running_stats", True):
        return False
    classes = type(module).__mro__[: type(module).__mro__.index(nn.Module)]
    functions = (var for kind in classes for var in vars(kind).values() if isinstance(var, FunctionType))
    return any("training" in function.__code__.co_names for function in functions)
