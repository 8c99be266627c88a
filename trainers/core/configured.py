"""The task that a configuration describes by itself: `model`, `data`, `criterion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trainers.core.config import Config, ConfigError, PyObject, resolved
from trainers.core.sampling import split
from trainers.task import Loss, Splits, Task


class ConfiguredTask(Task):
    """A model, a data set and a criterion by their import paths.

    `criterion(outputs, batch)` gives the mean loss of a batch; the number of its samples is
    `len(batch)` of the first tensor in it, or its `num_graphs`.

    Raises:
        ConfigError: with everything that the configuration lacks.
    """

    def __init__(self, config: Config):
        problems = []
        model = config.model.get("type")
        if not config.model:
            problems.append("model: is missing; write type: !pyobject my_package.MyModel and its arguments")
        elif not isinstance(model, PyObject) and not callable(model):
            problems.append(
                f"model.type: is {model!r}, a bare name; write !pyobject and the import path of the class"
            )
        if config.criterion is None:
            problems.append("criterion: is missing; write !pyobject my_package.compute_loss")
        if not config.data:
            problems.append("data: is missing; write dataset: !pyobject my_package.MyData and its arguments")
        elif not isinstance(config.data.get("dataset"), PyObject) and not callable(
            config.data.get("dataset")
        ):
            problems.append("data.dataset: is missing; write !pyobject and the import path of the data set")
        if problems:
            raise ConfigError([*problems, "or name a whole task: task: !pyobject my_package.MyTask"])
        self._config = config
        self._criterion = resolved(config.criterion)
        self._apply = resolved(config.apply_model)

    def build_model(self) -> nn.Module:
        """`model.type` called with the other fields of `model`."""
        arguments = {name: resolved(value) for name, value in self._config.model.items() if name != "type"}
        model: nn.Module = resolved(self._config.model["type"])(**arguments)
        return model

    def build_data(self) -> Splits:
        """`data.dataset` called with the other fields of `data`, and split."""
        data = dict(self._config.data)
        make, fractions = resolved(data.pop("dataset")), data.pop("split", [0.8, 0.1, 0.1])
        dataset = make(**{name: resolved(value) for name, value in data.items()})
        return Splits(*split(dataset, fractions, self._config.training.seed))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The criterion's mean, weighted by the number of samples."""
        outputs = self._apply(model, batch) if self._apply is not None else model(batch)
        count = samples_in(batch)
        return Loss(self._criterion(outputs, batch) * count, count)


def samples_in(batch: Any) -> int:
    """How many samples a batch holds."""
    if hasattr(batch, "num_graphs"):
        return int(batch.num_graphs)
    if isinstance(batch, torch.Tensor):
        return len(batch)
    if isinstance(batch, Mapping):
        return samples_in(next(iter(batch.values())))
    return samples_in(batch[0])
