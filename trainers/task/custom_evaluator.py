"""Custom evaluators, as in QuantumGrav: classes that evaluate a whole set by themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import called, resolved
from castoff.trainers.task.contract import construct, in_words
from castoff.trainers.task.portable import NotPortable, is_table, portable, restored

_KEEP = (
    "keep them in self.data, a pandas DataFrame with a row for each evaluation, or return numbers by name, "
    '{"loss": 0.5}'
)
_STATE = ("state_dict", "to_state_dict")
"""Names of the method that returns an evaluator's state: torch's, then QuantumGrav's."""


class CustomEvaluator:
    """An object with `validate(model, data_loader)` or `test(model, data_loader)`, and perhaps `report`.

    Its metrics are the last row of its `data`, if it has any, else the method's result.

    Raises:
        ConfigError: the object cannot be made, or lacks the method.
    """

    def __init__(self, evaluator: core.Evaluator, field: str, method: str):
        self._field = field
        self._method = method
        make = called(evaluator.type, f"{field}.type", "!pyobject my_module.MyEvaluator")
        arguments, before = (
            resolved(evaluator.kwargs, f"{field}.kwargs"),
            resolved(evaluator.args, f"{field}.args"),
        )
        self.evaluator = construct(make, arguments, f"{field}.kwargs", f"{field}.type", before)
        if not callable(getattr(self.evaluator, method, None)):
            kind = type(self.evaluator).__qualname__
            raise ConfigError([f"{field}.type: {kind} has no {method}(model, data_loader); define it"])

    def __call__(self, model: nn.Module, batches: Any) -> dict[str, float]:
        """Evaluate the model, call the evaluator's `report`, and return the metrics.

        Raises:
            ConfigError: the evaluator returns no metrics.
        """
        result = getattr(self.evaluator, self._method)(model, batches)
        report = getattr(self.evaluator, "report", None)
        if callable(report):
            report(result)
        kept: Any = getattr(self.evaluator, "data", None)
        metrics = _latest(kept) if hasattr(kept, "__len__") and len(kept) else _numbers(result)
        if not metrics:
            kind = type(self.evaluator).__qualname__
            raise ConfigError(
                [f"{self._field}: {kind}.{self._method} returned {in_words(result)}, not metrics; {_KEEP}"]
            )
        if "loss_avg" in metrics:
            metrics.setdefault("loss", metrics["loss_avg"])
        return metrics

    def state_dict(self) -> Any:
        """The evaluator's state for a checkpoint: from its `state_dict` method, else its `data`.

        Raises:
            ConfigError: a checkpoint cannot keep something in it.
        """
        methods = (getattr(self.evaluator, name, None) for name in _STATE)
        method = next(filter(callable, methods), None)
        state = method() if method is not None else {"data": getattr(self.evaluator, "data", None)}
        try:
            return portable(state)
        except NotPortable as error:
            kind, what = type(self.evaluator).__qualname__, in_words(error.value)
            allowed = "tensors, numbers, text, numpy arrays, pandas tables, and dicts and lists of these"
            raise ConfigError(
                [
                    f"{self._field}: the state of {kind} contains {what} (state{error.where}), but a "
                    f"checkpoint can hold only {allowed}; define state_dict() and load_state_dict(state)"
                ]
            ) from error

    def load_state_dict(self, state: Any) -> None:
        """Restore the evaluator's state from a checkpoint."""
        state = restored(state)
        method = getattr(self.evaluator, "load_state_dict", None)
        if callable(method):
            method(state)
        elif state["data"] is not None:
            self.evaluator.data = state["data"]


def _latest(history: Any) -> dict[str, float]:
    """The metrics of the last evaluation in an evaluator's `data`."""
    if is_table(history):
        return _numbers({name: history[name].iloc[-1] for name in history.columns})
    if isinstance(history, Mapping):
        return _numbers({name: _last(values) for name, values in history.items()})
    return _numbers(_last(history))


def _last(values: Any) -> Any:
    return values[-1] if isinstance(values, Sequence) and not isinstance(values, str) and values else values


def _numbers(given: Any) -> dict[str, float]:
    """The numbers in a result by name, NAME/0, NAME/1 … for lists; a single number is the loss. Other
    values are dropped.
    """
    if is_table(given):
        return _latest(given) if len(given) else {}
    if isinstance(given, tuple) and len(given) == 2:  # as in QuantumGrav's DefaultEvaluator
        given = dict(zip(("loss", "loss_std"), given, strict=True))
    if not isinstance(given, Mapping):
        given = {"loss": given} if _is_number(given) else {}
    numbers: dict[str, float] = {}
    for name, value in given.items():
        numbers |= {at: float(each) for at, each in _parts(str(name), value) if _is_number(each)}
    return numbers


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "tolist"):  # a torch or numpy array
        value = value.item() if math.prod(value.shape) == 1 else value.tolist()
    if isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _parts(f"{name}/{number}", each)
    else:
        yield name, value


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1
    return hasattr(value, "__float__") and not isinstance(value, (str, bytes))
