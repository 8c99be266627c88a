"""Evaluators to derive from, with QuantumGrav's names: classes that evaluate a whole set by themselves.

`Evaluator`, `Validator` and `Tester` keep a pandas table; `DefaultEvaluator`, `DefaultValidator` and
`DefaultTester` are those of QuantumGrav's older releases, which keep a list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.configuration.pyobject import resolved
from castoff.trainers.gnn.models.section import applied
from castoff.trainers.gnn.names import found
from castoff.trainers.task.configured_task import samples_in
from castoff.trainers.task.criterion import Criterion
from castoff.trainers.task.prediction_metrics import Monitors, targets_in, to_keep

Kind = TypeVar("Kind", bound="Evaluator")

LOSSES = ("loss_avg", "loss_min", "loss_max")
"""Mean loss of the set's samples, and the smallest and largest mean of a batch."""


class _Judging:
    """The base of both kinds of evaluators: it applies a model and the criterion to each batch.

    `device`: None means the model's device.
    """

    def __init__(self, device: Any, criterion: Callable[..., Any], apply_model: Callable[..., Any] | None):
        self.device = device
        self.criterion = found(criterion, "criterion", "criterion")
        self.apply_model = apply_model
        self.logger = logging.getLogger(__name__)
        self._mean = Criterion(self.criterion, "criterion").mean

    @torch.no_grad()
    def _judged(self, model: nn.Module, data_loader: Iterable[Any]) -> list[tuple[Tensor, int, Any, Any]]:
        """The loss, the number of samples, the outputs and the batch itself, for each batch."""
        model.eval()
        apply = self.apply_model or applied(model)
        device = next(model.parameters()).device if self.device is None else self.device
        judged = []
        for graphs in data_loader:
            batch = graphs.to(device)
            outputs = apply(model, batch)
            loss = self._mean(outputs, batch, None).detach().cpu()
            judged.append((loss, samples_in(batch), outputs, batch))
        return judged


class Evaluator(_Judging):
    """Measures the criterion and the metrics in `evaluator_tasks`, each as {name, monitor, args, kwargs}.

    `data` is a table with a row for each evaluation. Meant for subclassing: override `evaluate` or
    `report`.

    Raises:
        ConfigError: an evaluator task makes no sense.
    """

    def __init__(
        self,
        device: Any,
        criterion: Callable[..., Any],
        evaluator_tasks: Sequence[Mapping[str, Any]] | None = None,
        apply_model: Callable[..., Any] | None = None,
    ):
        import pandas

        super().__init__(device, criterion, apply_model)
        problems: list[str] = []
        monitors = [
            convert(dict(task), core.Monitor, f"evaluator_tasks.{number}", problems)
            for number, task in enumerate(evaluator_tasks or [])
        ]
        if problems:
            raise ConfigError(problems)
        self.tasks = Monitors(monitors, "evaluator_tasks", found, LOSSES)
        self.data = pandas.DataFrame({name: pandas.Series([], dtype=object) for name in LOSSES})

    def evaluate(self, model: nn.Module, data_loader: Iterable[Any]) -> Any:
        """Evaluate the model, and add a row to `data`, which is returned."""
        judged = self._judged(model, data_loader)
        losses = torch.stack([loss for loss, *_ in judged]).double()
        counts = torch.tensor([count for _, count, *_ in judged], dtype=torch.float64)
        row = {
            "loss_avg": float((losses * counts).sum() / counts.sum()),
            "loss_min": float(losses.min()),
            "loss_max": float(losses.max()),
        }
        kept = [(to_keep(outputs), to_keep(targets_in(batch))) for _, _, outputs, batch in judged]
        number = len(self.data)
        for name, value in {**row, **self.tasks.measure(kept)}.items():
            self.data.loc[number, name] = value
        return self.data

    def report(self, data: Any) -> None:
        """Log the last row."""
        self.logger.info("%s:\n%s", type(self).__name__, data.tail(1).to_string(float_format="{:e}".format))

    @classmethod
    def from_config(cls: type[Kind], config: Mapping[str, Any]) -> Kind:
        """Make an evaluator from {device, criterion, evaluator_tasks, apply_model}."""
        arguments = resolved(dict(config))
        return cls(torch.device(arguments.pop("device")), **arguments)

    def state_dict(self) -> dict[str, Any]:
        """The table, for a checkpoint."""
        return {"data": self.data}

    to_state_dict = state_dict

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the table from a checkpoint."""
        self.data = state["data"]


class Validator(Evaluator):
    """An evaluator of the validation set."""

    def validate(self, model: nn.Module, data_loader: Iterable[Any]) -> Any:
        """Evaluate the model."""
        return self.evaluate(model, data_loader)


class Tester(Evaluator):
    """An evaluator of the test set."""

    def test(self, model: nn.Module, data_loader: Iterable[Any]) -> Any:
        """Evaluate the model."""
        return self.evaluate(model, data_loader)


class DefaultEvaluator(_Judging):
    """Measures the criterion; `data` is a list of (mean, standard deviation) over the batches."""

    def __init__(
        self, device: Any, criterion: Callable[..., Any], apply_model: Callable[..., Any] | None = None
    ):
        super().__init__(device, criterion, apply_model)
        self.data: Any = []

    def evaluate(self, model: nn.Module, data_loader: Iterable[Any]) -> Any:
        """The losses of the batches."""
        return [loss for loss, *_ in self._judged(model, data_loader)]

    def report(self, data: Any) -> None:
        """Log the mean and the standard deviation of losses from `evaluate`, and add them to `data`."""
        losses = torch.as_tensor(data, dtype=torch.float64)
        mean, deviation = float(losses.mean()), float(losses.std(correction=0))
        self.logger.info("%s: loss %g, standard deviation %g", type(self).__name__, mean, deviation)
        self.data.append((mean, deviation))


class DefaultValidator(DefaultEvaluator):
    """An evaluator of the validation set."""

    def validate(self, model: nn.Module, data_loader: Iterable[Any]) -> Any:
        """Evaluate the model."""
        return self.evaluate(model, data_loader)


class DefaultTester(DefaultEvaluator):
    """An evaluator of the test set."""

    def test(self, model: nn.Module, data_loader: Iterable[Any]) -> Any:
        """Evaluate the model."""
        return self.evaluate(model, data_loader)
