"""Whether a model is in training mode where that matters: from_pretrained gives it in eval mode."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import FunctionType

from torch import nn

from castoff.trainers.configuration.fields import few

logger = logging.getLogger(__name__)


def warn_of_eval_mode(task: str, model: nn.Module) -> None:
    """Name the parts of the model that train in eval mode, as far as the mode changes what they do."""
    parts = list(_in_eval_mode(model, "the model"))
    if parts:
        logger.warning(
            "%s.build_model leaves %s in eval mode, so it trains without dropout and with fixed batch norm "
            "statistics: from_pretrained() gives such models. Call model.train() before you return it; if "
            "eval mode is meant, freeze those parts with requires_grad_(False), or ignore this",
            task,
            few(parts),
        )


def _in_eval_mode(module: nn.Module, name: str) -> Iterator[str]:
    """The outermost parts in eval mode that a mode matters to and that are not frozen as a whole."""
    if not module.training:
        parameters = list(module.parameters())
        frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
        if not frozen and any(map(_has_modes, module.modules())):
            yield name
        return
    for part, each in module.named_children():
        yield from _in_eval_mode(each, part if name == "the model" else f"{name}.{part}")


def _has_modes(module: nn.Module) -> bool:
    """Whether its own code asks for the mode, and would do something by it."""
    # A dropout of 0 does nothing; nor does a norm that keeps no statistics know modes.
    idle = 0 in (getattr(module, "p", None), getattr(module, "dropout", None))
    if idle or not getattr(module, "track_running_stats", True):
        return False
    classes = type(module).__mro__[: type(module).__mro__.index(nn.Module)]
    functions = (var for kind in classes for var in vars(kind).values() if isinstance(var, FunctionType))
    return any("training" in function.__code__.co_names for function in functions)
