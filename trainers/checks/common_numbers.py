"""Draws the same random numbers for samples and for the same samples twice, so that both can be compared
exactly.

A loss that draws noise for each sample, such as a VAE's or a diffusion model's, draws twice as many numbers
for twice the samples. Here, the second half of these numbers repeats the first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_SIZED = {torch.rand, torch.randn, torch.randint}
"""Functions of torch whose result has a given size."""
_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like}
_LIKE |= {torch.normal, torch.bernoulli, torch.poisson, torch.multinomial, torch.binomial}
"""Functions of torch whose result has the shape of a given tensor."""
_IN_PLACE = {
    getattr(Tensor, f"{name}_")
    for name in (
        "normal",
        "uniform",
        "exponential",
        "bernoulli",
        "random",
        "log_normal",
        "cauchy",
        "geometric",
    )
}


class CommonNumbers:
    """Records the lengths drawn for the samples, and repeats the numbers for the samples twice."""

    def __init__(self) -> None:
        self._lengths: list[tuple[Any, int]] = []

    def once(self) -> AbstractContextManager[Any]:
        """A context in which the sums over the samples are computed."""
        return _Once(self._lengths)

    def twice(self) -> AbstractContextManager[Any]:
        """A context in which the sums over the same samples twice are computed, from the same seed."""
        return _Twice(self._lengths)


class _Once(TorchFunctionMode):
    def __init__(self, lengths: list[tuple[Any, int]]):
        super().__init__()
        self._lengths = lengths

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _SIZED or func in _LIKE or func in _IN_PLACE:
            self._lengths.append((func, _length(result)))
        return result


class _Twice(TorchFunctionMode):
    def __init__(self, lengths: list[tuple[Any, int]]):
        super().__init__()
        self._lengths = lengths
        self._drawn = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        draws = _DRAWS.get(func)
        if draws is None:
            return func(*args, **kwargs)
        expected, length = self._lengths[self._drawn] if self._drawn < len(self._lengths) else (None, 0)
        self._drawn += 1
        result = draws(func, args, kwargs, length) if expected is func and length else None
        return func(*args, **kwargs) if result is None else result


def _length(given: Any) -> int:
    return len(given) if isinstance(given, Tensor) and given.dim() else 0


def _sized(func: Any, args: Any, kwargs: Any, length: int) -> Tensor | None:
    """Draw numbers for half of the size, and repeat them; None: the size is not twice `length`."""
    first = 0
    if func is torch.randint:  # whose bounds come first: one or two
        first = next((at for at, each in enumerate(args) if not isinstance(each, int)), len(args))
    size, named = (args[first:], False) if len(args) > first else ((kwargs.get("size"),), True)
    whole = size[0] if len(size) == 1 and isinstance(size[0], tuple | list) else size
    if not whole or whole[0] != 2 * length:
        return None
    half = (length, *whole[1:])
    more = {**kwargs, "size": half} if named else kwargs
    drawn = func(*args[:first], **more) if named else func(*args[:first], half, **more)
    return _again(drawn)


def _like(func: Any, args: Any, kwargs: Any, length: int) -> Tensor | None:
    lengths = {_length(each) for each in (*args, *kwargs.values()) if isinstance(each, Tensor)}
    if 2 * length not in lengths:
        return None

    def half(each: Any) -> Any:
        return each[:length] if _length(each) == 2 * length else each

    return _again(func(*map(half, args), **{name: half(each) for name, each in kwargs.items()}))


def _in_place(func: Any, args: Any, kwargs: Any, length: int) -> Tensor | None:
    whole: Tensor = args[0]
    if _length(whole) != 2 * length:
        return None
    func(whole[:length], *args[1:], **kwargs)
    whole[length:].copy_(whole[:length])
    return whole


def _again(half: Tensor) -> Tensor:
    return torch.cat([half, half])


_DRAWS: dict[Any, Callable[[Any, Any, Any, int], Tensor | None]] = {
    **dict.fromkeys(_SIZED, _sized),
    **dict.fromkeys(_LIKE, _like),
    **dict.fromkeys(_IN_PLACE, _in_place),
}
