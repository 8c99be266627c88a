"""The task of a configuration: the one that it names, or describes by `model`, `data`, `criterion`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from trainers.core.config import Config
from trainers.core.contract import a_task, in_words, made
from trainers.core.fields import ConfigError
from trainers.core.pyobject import PyObject, called, resolved
from trainers.core.sampling import split
from trainers.task import Loss, Splits, Task


def task_of(config: Config, given: Task | None = None) -> Task:
    """The task that is given; else the one that the configuration names; else what it describes.

    Raises:
        ConfigError: it is no Task, or cannot be made.
    """
    if given is not None:
        return a_task(given)
    if config.task is None:
        return ConfiguredTask(config)
    beside = [name for name in ("model", "data", "criterion") if getattr(config, name)]
    if beside:
        raise ConfigError([f"task: brings its own {', '.join(beside)}; drop them, or drop task"])
    make = called(config.task, "task", "!pyobject my_module.MyTask")
    return a_task(made(make, config.task_kwargs, "task_kwargs", "task"))


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
        self._criterion = called(config.criterion, "criterion", "!pyobject my_package.compute_loss")
        self._apply = config.apply_model and called(
            config.apply_model, "apply_model", "!pyobject my_package.apply, a function(model, batch)"
        )

    def build_model(self) -> nn.Module:
        """`model.type` called with the other fields of `model`."""
        arguments = {name: resolved(value) for name, value in self._config.model.items() if name != "type"}
        model: nn.Module = made(resolved(self._config.model["type"]), arguments, "model", "model.type")
        return model

    def build_data(self) -> Splits:
        """`data.dataset` called with the other fields of `data`, and split."""
        data = dict(self._config.data)
        make, fractions = resolved(data.pop("dataset")), data.pop("split", [0.8, 0.1, 0.1])
        arguments = {name: resolved(value) for name, value in data.items()}
        dataset = made(make, arguments, "data", "data.dataset")
        return Splits(*split(dataset, fractions, self._config.training.seed))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The criterion's mean, weighted by the number of samples."""
        outputs = self._apply(model, batch) if self._apply is not None else model(batch)
        mean = self._criterion(outputs, batch)
        if not isinstance(mean, Tensor) or mean.dim():
            raise ConfigError([f"criterion: gave {in_words(mean)}; {_WRITE_MEAN}"])
        count = samples_in(batch)
        return Loss(mean * count, count)


_WRITE_MEAN = "name a function(outputs, batch) that gives the mean loss of a batch, a tensor with one number"


def samples_in(batch: Any) -> int:
    """How many samples a batch holds: its `num_graphs`, else the length of the first tensor that has one.

    Raises:
        ConfigError: there is no such tensor.
    """
    found = _samples(batch)
    if found is None:
        raise ConfigError(
            [
                f"criterion: how many samples it judges cannot be seen in a batch that is {in_words(batch)}, "
                "with no tensor and no num_graphs; write a Task, whose loss says it"
            ]
        )
    return found


def _samples(part: Any) -> int | None:
    if hasattr(part, "num_graphs"):
        return int(part.num_graphs)
    if isinstance(part, PackedSequence):
        return int(part.batch_sizes[0])
    if isinstance(part, Tensor):
        return len(part) if part.dim() else None
    if isinstance(part, Mapping):
        parts = list(part.values())
    elif isinstance(part, (list, tuple)):
        parts = list(part)
    else:
        parts = list(getattr(part, "__dict__", {}).values())  # a dataclass, perhaps
    return next((found for each in parts if (found := _samples(each)) is not None), None)
