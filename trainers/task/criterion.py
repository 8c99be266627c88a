"""A criterion that a configuration names: its arguments, and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.task.contract import in_words

_WRITE_MEAN = (
    "name a function(outputs, batch) that returns the mean loss of a batch, a tensor with one number"
)
_WRITE = "write criterion(outputs, batch), or criterion(outputs, batch, trainer)"


class Criterion:
    """A function of (outputs, batch), or of (outputs, batch, trainer).

    A function that can be called without the trainer gets it only in training, and only if its third
    parameter is called `trainer` or is `*args`.

    Raises:
        ConfigError: it can be called with neither two nor three arguments.
    """

    def __init__(self, function: Any, field: str):
        if isinstance(function, type):
            how = "write a function(outputs, batch) that makes one and calls it"
            raise ConfigError(
                [f"{field}: is the class {function.__qualname__}, which does not return a loss; {how}"]
            )
        self.function: Callable[..., Any] = function
        self._field = field
        self._with_two, self._with_three = _callable_with(function, field)

    def mean(self, outputs: Any, batch: Any, trainer: Any, *, training: bool = False) -> Tensor:
        """The mean over the samples of a batch, as a tensor without dimensions.

        Raises:
            ConfigError: the function does not return one number.
        """
        needed = not self._with_two
        more = (trainer,) if needed or (training and self._with_three) else ()
        mean = self.function(outputs, batch, *more)
        if not isinstance(mean, Tensor) or mean.numel() != 1:
            raise ConfigError([f"{self._field}: returned {in_words(mean)}; {_WRITE_MEAN}"])
        return mean.reshape(()) if mean.dim() else mean


def _callable_with(function: Any, field: str) -> tuple[bool, bool]:
    """Whether a function takes (outputs, batch), and whether it also takes the trainer."""
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):  # the parameters of a function in C are unknown
        return True, False
    two, three = (_binds(signature, count) for count in (2, 3))
    if two is None:
        return True, three is None and _wants_trainer(signature)
    if three is None:
        return False, True
    name = getattr(function, "__qualname__", function)
    raise ConfigError([f"{field}: {name} cannot be called with two arguments ({two}); {_WRITE}"])


def _binds(signature: inspect.Signature, count: int) -> TypeError | None:
    """Why a function cannot be called with `count` arguments; None: it can."""
    try:
        signature.bind(*range(count))
    except TypeError as error:
        return error
    return None


def _wants_trainer(signature: inspect.Signature) -> bool:
    """Whether the third parameter is the trainer's: named `trainer`, or `*args` after two others."""
    # Not a wrapper's (*args, **kwargs), nor another parameter with a default.
    third = [*signature.parameters.values()][2:3]
    return any(each.name == "trainer" or each.kind is inspect.Parameter.VAR_POSITIONAL for each in third)
