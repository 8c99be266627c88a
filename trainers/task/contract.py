"""Checks what a task returns the first time, and reports mistakes in the task's own terms."""

from __future__ import annotations

import inspect
import reprlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.nn.parameter import is_lazy

from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.randomness import GENERATORS, rng_state
from castoff.trainers.task import Loss, Splits, Sum, Task

_WRITE_LOSS = "return Loss(total), the sum over the batch's samples as a tensor with one number"
_WRITE_SPLITS = (
    "return Splits(train, validation, test), e.g. Splits(*split(data, [0.8, 0.1, 0.1], seed=0)); split "
    "is in trainers"
)


def construct(
    make: Any, arguments: Mapping[str, Any], field: str, own: str | None = None, before: Sequence[Any] = ()
) -> Any:
    """Call the class or function in field `own` with the arguments in `field`.

    `before`: positional arguments.

    Raises:
        ConfigError: it takes no such arguments, lacks some, or is an abstract class.
    """
    own = own or field
    missing = sorted(getattr(make, "__abstractmethods__", ()))
    if inspect.isabstract(make):
        raise ConfigError(
            [
                f"{own}: {_name(make)} cannot be created: it does not define the abstract "
                f"methods {', '.join(missing)}; define them"
            ]
        )
    problems = wrong_arguments(make, arguments, field, given=len(before))
    if problems:
        raise ConfigError(problems)
    try:
        return make(*before, **arguments)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise  # raised inside it: the arguments' names are right
        raise ConfigError([f"{field}: {error}"]) from error


def declared_generators(owner: Any, field: str) -> frozenset[str]:
    """The global random generators that a task or data set may draw from, as in its `rng_sources`.

    Without `rng_sources`, all of them.

    Raises:
        ConfigError: `rng_sources` has an unknown name.
    """
    declared = getattr(owner, "rng_sources", None)
    if declared is None:
        return GENERATORS
    several = isinstance(declared, Collection) and not isinstance(declared, str)
    if not several or any(each not in tuple(GENERATORS) for each in declared):
        raise ConfigError(
            [
                f"{field}: {type(owner).__name__}.rng_sources is {declared!r}; it takes some of "
                f"{sorted(GENERATORS)}, or ()"
            ]
        )
    return frozenset(declared)


def declared_arguments(task: Task | None, attribute: str) -> set[str]:
    """The paths of the fields that a task names in `volatile_arguments` or `changeable_arguments`.

    Raises:
        ConfigError: the attribute is not a collection of names.
    """
    declared = getattr(task, attribute, ())
    several = isinstance(declared, Collection) and not isinstance(declared, str)
    if not several or not all(isinstance(each, str) and each for each in declared):
        raise ConfigError(
            [
                f"task: {type(task).__name__}.{attribute} is {declared!r}; it takes names of arguments "
                "and paths below them, such as ('folder', 'sampling.steps'), or ()"
            ]
        )
    within = "" if task is None or task.arguments is None else f"{task.arguments}."
    return {f"{within}{each}" for each in declared}


@contextmanager
def drawn_as_declared(task: Task) -> Iterator[None]:
    """Check that the training step in this context draws only from the generators in `rng_sources`.

    Raises:
        ConfigError: it draws from others, so that a resumed run would differ from an uninterrupted one.
    """
    others = GENERATORS.difference(task.rng_sources)
    before = rng_state(others)
    yield
    after = rng_state(others)
    drawn = [name for name in sorted(before) if before[name] != after[name]]
    if drawn:
        raise ConfigError(
            [
                f"task: {type(task).__name__}.rng_sources is {task.rng_sources!r}, but a training step draws "
                f"from {', '.join(drawn)}; add it, or leave rng_sources out"
            ]
        )


def wrong_arguments(make: Any, arguments: Mapping[str, Any], field: str, given: int = 0) -> list[str]:
    """Problems with the names of the arguments in `field`, after the first `given` positional ones.

    None are found if the signature is unknown.
    """
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return []
    named = [name for name, each in list(parameters.items())[given:] if each.kind in _BY_NAME]
    any_name = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    problems = [
        f"{field}.{name}: {_name(make)} takes no such argument{suggestion(str(name), named)}"
        for name in arguments
        if name not in named and not any_name
    ]
    problems += [
        f"{field}.{name}: is missing; {_name(make)} needs it"
        for name in named
        if name not in arguments and parameters[name].default is inspect.Parameter.empty
    ]
    return problems


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def validate_task(task: Any) -> Task:
    """Check that an object is a Task, and return it."""
    if isinstance(task, Task):
        return task
    if isinstance(task, type):
        raise ConfigError([f"task: is the class {task.__qualname__}; pass an object, {task.__qualname__}(…)"])
    kind = type(task).__qualname__
    raise ConfigError([f"task: is {in_words(task)}, which is not a Task; write class {kind}(trainers.Task)"])


def validate_model(task: Task, model: Any) -> nn.Module:
    """Check that `build_model` returned an unwrapped model, and return it."""
    if isinstance(model, (DistributedDataParallel, DataParallel)):
        raise _wrong(task, "build_model", model, "return the model itself, which the trainer wraps")
    if isinstance(model, nn.Module):
        return _looked_through(task, model)
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise _wrong(task, "build_model", model, f"return an object of it, {model.__qualname__}(…)")
    raise _wrong(task, "build_model", model, "return a torch.nn.Module")


def _looked_through(task: Task, model: nn.Module) -> nn.Module:
    """Check that all tensors of the model have a shape and no embedding has sparse gradients."""
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(weight):
            write = "call the model once on an example before you return it"
            raise _reported(task, "build_model", "a tensor that has no shape yet", write, name)
    for name, part in model.named_modules():
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)) and part.sparse and part.weight.requires_grad:
            embedding = f"an {type(part).__name__} with sparse=True"
            write = "drop sparse, because norm and clipping take dense gradients, or freeze its weight"
            raise _reported(task, "build_model", embedding, write, name or "the model")
    return model


def validate_data(task: Task, splits: Any) -> Splits:
    """Check that `build_data` returned three data sets, and return them."""
    if not isinstance(splits, Splits):
        raise _wrong(task, "build_data", splits, _WRITE_SPLITS)
    for name, part in splits._asdict().items():
        if isinstance(part, torch.utils.data.DataLoader):
            write = "return the data set; the trainer makes the loaders, and decides the order of samples"
            raise _wrong(task, "build_data", part, write, name)
        if part is None and name != "train":
            raise _wrong(task, "build_data", part, "leave it out of Splits if there is none", name)
        if not (hasattr(part, "__getitem__") and hasattr(part, "__len__")) and not hasattr(part, "__iter__"):
            write = "return a data set: with __getitem__ and __len__, or __iter__"
            raise _wrong(task, "build_data", part, write, name)
    return splits


def validate_loss(task: Task, loss: Any) -> Loss:
    """Check that `loss` returned a Loss, and return it; cheap enough for every step."""
    if isinstance(loss, Loss):
        return loss
    if loss is None:
        raise _wrong(task, "loss", loss, f"{_WRITE_LOSS}; is a return missing?")
    raise _wrong(task, "loss", loss, f"{_WRITE_LOSS}, or of a mean, Loss(mean * samples)")


def validate_first_loss(task: Task, loss: Any) -> Loss:
    """Check the first Loss in detail, and return it; may wait for the device."""
    checked = validate_loss(task, loss)
    total = checked.total
    if not isinstance(total, Tensor):
        raise _wrong(task, "loss", total, _WRITE_LOSS, "total")
    if total.dim():
        raise _wrong(task, "loss", total, "sum it: total.sum()", "total")
    if not total.is_floating_point():
        raise _wrong(task, "loss", total, "return a floating-point number", "total")
    if not total.requires_grad:
        raise _reported(
            task,
            "loss",
            "a tensor that needs no gradient",
            "make it of the model's outputs, without no_grad, detach() or item()",
            "total",
        )
    _count(task, "loss", checked.count, "count")
    if not isinstance(checked.metrics, Mapping):
        raise _wrong(
            task, "loss", checked.metrics, 'return sums by name, {"accuracy": right.sum()}', "metrics"
        )
    for name, value in checked.metrics.items():
        if name == "loss":
            raise _wrong(
                task, "loss", value, "use another name: `loss` is the name of the total", "metrics['loss']"
            )
        if not _is_number(value):
            raise _wrong(task, "loss", value, "return a sum: one number", f"metrics[{name!r}]")
    return checked


def validate_first_sums(task: Task, sums: Any) -> Mapping[str, Sum]:
    """Check the first sums that `evaluate` returned, and return them; may wait for the device."""
    write = 'return {"loss": (sum, count)}, a pair for each metric'
    if not isinstance(sums, Mapping):
        raise _wrong(task, "evaluate", sums, write)
    for name, pair in sums.items():
        if not isinstance(name, str):
            raise _wrong(task, "evaluate", name, "name metrics by text", "the name")
        if isinstance(pair, (str, Tensor)) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise _wrong(task, "evaluate", pair, f"{write}: a sum, and the number of its items", name)
        if not _is_number(pair[0]):
            raise _wrong(task, "evaluate", pair[0], "return a sum: one number", f"{name}'s sum")
        _count(task, "evaluate", pair[1], f"{name}'s count")
    return sums


def metrics(task: Task, method: str, given: Any) -> dict[str, float]:
    """Check that `finish` or `after_evaluation` returned numbers by name, and return them as floats."""
    if not isinstance(given, Mapping):
        raise _wrong(task, method, given, 'return numbers by name, {"perplexity": 3.2}')
    for name, value in given.items():
        if not isinstance(name, str):
            raise _wrong(task, method, name, "name metrics by text", "the name")
        if not _is_number(value):
            raise _wrong(task, method, value, "return one number", name)
    return {name: float(value) for name, value in given.items()}


def state(task: Task, given: Any) -> dict[str, Any]:
    """Check that `torch.load(weights_only=True)` could read what `state_dict` returned, and return that."""
    if type(given) not in (dict, OrderedDict):
        raise _wrong(task, "state_dict", given, "return a dict")
    wrong = _unreadable(given, "")
    if wrong is not None:
        where, value = wrong
        allowed = "tensors, numbers, text, None, and dicts, lists and tuples of these"
        raise _wrong(task, "state_dict", value, f"a checkpoint can hold only {allowed}", where)
    return dict(given)


_KEPT: set[type] = {str, int, float, complex, bool, type(None), bytes, Tensor, nn.Parameter}
_KEPT |= {torch.Size, torch.dtype, torch.device}


def _unreadable(value: Any, where: str) -> tuple[str, Any] | None:
    """The first part that a checkpoint cannot hold, as (place, value). As in torch, subclasses of dict and
    list count as such parts.
    """
    if type(value) in (dict, OrderedDict):
        items = [(f"{where}[{key!r}]", part) for key, part in value.items()]
        items += [(f"{where}'s key", key) for key in value]
    elif type(value) in (list, tuple, set):
        items = [(f"{where}[{number}]", part) for number, part in enumerate(value)]
    else:
        return None if type(value) in _KEPT else (where, value)
    return next((wrong for place, part in items if (wrong := _unreadable(part, place)) is not None), None)


def _count(task: Task, method: str, count: Any, part: str) -> None:
    write = "return a whole number of at least 0, or None for the batch's samples"
    if count is None:
        return
    if isinstance(count, Tensor):
        if count.dim() or count.is_complex() or count.dtype == torch.bool or not float(count) >= 0:
            raise _wrong(task, method, count, f"{write}; a tensor must have no dimensions", part)
    elif type(count) is not int or count < 0:
        raise _wrong(task, method, count, write, part)


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dim() == 0 and not value.is_complex()
    return hasattr(value, "__float__") and not isinstance(value, (str, bytes))


def _wrong(task: Task, method: str, given: Any, write: str, part: str | None = None) -> ConfigError:
    return _reported(task, method, in_words(given), write, part)


def _reported(task: Task, method: str, given: str, write: str, part: str | None = None) -> ConfigError:
    turn = task.state.turn if method == "loss" and task.turns and hasattr(task, "state") else None
    where = (f" for {part}" if part else "") + (f" in the turn of {turn}" if turn else "")
    return ConfigError([f"{type(task).__qualname__}.{method} returned {given}{where}; {write}"])


def in_words(value: Any) -> str:
    """A value, or its type, in words for a message."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, Tensor):
        if value.dim():
            return f"a tensor of shape {tuple(value.shape)}"
        return f"a tensor, {value.item()!r} of {value.dtype}"
    if isinstance(value, (bool, int, float, str)):
        return reprlib.repr(value)
    if type(value) in (tuple, list):
        return f"a {type(value).__name__} of {len(value)}"
    kind = type(value).__qualname__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _name(make: Any) -> str:
    return str(getattr(make, "__qualname__", None) or make)
