"""Detects state that a step changes but no checkpoint holds, so that a resumed run would lack it.

The attributes of the task and of the model's modules are compared before and after the first step, and the
first calls of hooks: numbers, tensors, arrays, generators, containers of these, and objects with a
`state_dict`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn

from castoff.trainers.configuration.fields import few
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.randomness import undisturbed
from castoff.trainers.optimization.bits import bit_sums
from castoff.trainers.optimization.local import local
from castoff.trainers.task import Task
from castoff.trainers.task.own_generators import known_generator, own_generators

logger = logging.getLogger(__name__)

_DEEPEST = 5
_MOST = 5000
"""The most levels and parts of an attribute that are searched."""

_FEW = 1000
"""Size up to which a tensor's numbers are compared one by one."""

_THE_TRAINERS = ("state", "trainer")
"""A task's attributes that the trainer sets."""


class _Held(NamedTuple):
    """The numbers and texts that a value contains, at any depth."""

    numbers: frozenset[Any]
    """The value's single numbers, and digests of its tensors."""
    texts: tuple[str | bytes, ...] = ()


@contextmanager
def changes_are_kept(
    task: Task, model: nn.Module, context: RankContext, hook: str | None = None
) -> Iterator[None]:
    """A context for a step, or for a hook: rank 0 warns of changed attributes that are in neither the task's
    nor the model's state.

    A hook's changed whole numbers and flags count too: in a step they mostly count calls for a display.
    """
    before, texts = _state(task, model, hook), _kept(task).texts
    yield
    kept = _kept(task)
    if not context.is_main or kept.texts != texts:  # a text may encode any state
        return
    saved = kept.numbers | _held(model.state_dict()).numbers
    after = _state(task, model, hook)
    new = {name: held.numbers - before[name].numbers for name, held in after.items() if name in before}
    lost = sorted(name for name, numbers in new.items() if not numbers <= saved)
    if lost:
        kind = type(task).__qualname__
        logger.warning(
            "%s changes %s, which no checkpoint holds: a resumed run begins without it, and differs "
            "from one that was not interrupted. Return it in %s.state_dict, restore it in "
            "load_state_dict; in a model make it a buffer (register_buffer); for random numbers use "
            "self.state.generator. Ignore this for values that are only displayed",
            hook or "A step",
            few(lost),
            kind,
        )


def _kept(task: Task) -> _Held:
    with undisturbed():  # state_dict may draw
        return _held(task.state_dict())


def _state(task: Task, model: nn.Module, hook: str | None) -> dict[str, _Held]:
    """The values of the attributes that may hold state, by name."""
    values: dict[str, _Held] = {}
    kind = type(task).__qualname__
    for name, value in vars(task).items():
        if name not in _THE_TRAINERS and (hook is not None or not isinstance(value, int)):
            values[f"{kind}.{name}"] = _held(value)
            for generator in own_generators(value):
                values[f"{kind}.{name}{generator.name.removeprefix(type(value).__name__)}"] = _held(
                    generator.read()
                )
    for part, module in model.named_modules():
        for name, value in _attributes(module):
            values[f"model.{part}.{name}" if part else f"model.{name}"] = _held(value)
    return values


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """A module's own numbers, tensors and generators, and its non-persistent buffers.

    Its containers are skipped, since they are torch's.
    """
    lasting = module.state_dict(keep_vars=True)
    for name, value in module.named_buffers(recurse=False):
        if name not in lasting:
            yield name, value
    for name, value in vars(module).items():
        computed = isinstance(value, Tensor) and value.requires_grad
        if isinstance(value, float | Tensor | numpy.ndarray) and not computed:
            yield name, value
        elif (generator := known_generator(value, name)) is not None:
            yield name, generator.read()


def _held(value: Any) -> _Held:
    numbers: set[Any] = set()
    texts: list[str | bytes] = []
    for part in _parts(value, 0, set()):
        if isinstance(part, str | bytes):
            texts.append(part)
        elif isinstance(part, Tensor):
            numbers |= _of_tensor(part)
        else:
            numbers.add(_number(part))
    return _Held(frozenset(numbers), tuple(texts))


def _parts(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """The numbers, texts and tensors in a value."""
    if depth > _DEEPEST or len(seen) > _MOST:
        return
    if isinstance(value, bool | int | float | complex | str | bytes | Tensor):
        yield value
    elif isinstance(value, numpy.ndarray | numpy.generic):
        if value.dtype.kind in "biufc":
            yield torch.from_numpy(numpy.array(value))
    elif id(value) not in seen:
        seen.add(id(value))
        for part in _inside(value):
            yield from _parts(part, depth + 1, seen)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | deque):
        return list(value)
    if callable(getattr(value, "state_dict", None)) and not isinstance(value, type | Task):
        return [value.state_dict()]
    return ()


def _of_tensor(tensor: Tensor) -> set[Any]:
    """A small tensor's numbers, since a state may keep them as a list; else a digest of its bits."""
    tensor = local(tensor.detach())
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return set()
    if tensor.numel() <= _FEW:
        return set(map(_number, tensor.reshape(-1).tolist()))
    return {(tuple(tensor.shape), tensor.dtype, int(bit_sums([tensor])[0]))}


def _number(value: Any) -> Any:
    return value if value == value else "nan"  # NaN is not equal to itself
