"""The task of a configuration: named in `task`, or described by `model`, `data` and `criterion`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, gathered
from castoff.trainers.configuration.pyobject import PyObject, called, resolved
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.task import Evaluated, Loss, Splits, Sum, Task
from castoff.trainers.task.contract import construct, in_words, validate_task
from castoff.trainers.task.criterion import Criterion
from castoff.trainers.task.custom_evaluator import CustomEvaluator
from castoff.trainers.task.prediction_metrics import Monitors, targets_in, to_keep
from castoff.trainers.task.splitting import split


class Judging(NamedTuple):
    """How a batch is evaluated: `apply(model, batch)`, the criterion, and monitors."""

    criterion: Criterion
    apply: Callable[[nn.Module, Any], Any]
    monitors: Monitors


_EXAMPLES = {
    "model": "!pyobject my_package.MyModel",
    "criterion": "!pyobject my_package.compute_loss",
    "apply_model": "!pyobject my_package.apply, a function(model, batch)",
    "monitor": "!pyobject my_package.my_measure, a function(predictions, targets)",
}

_TYPES = {
    "validation.validator": ("DefaultValidator", "Validator"),
    "testing.tester": ("DefaultTester", "Tester"),
}
"""The field of each set's evaluator, and QuantumGrav's names of the default one."""

_METHODS = {"validation.validator": "validate", "testing.tester": "test"}
"""The method of a custom evaluator that is called."""


class ConfiguredTask(Task):
    """A model, a data set and a criterion by their import paths.

    `criterion(outputs, batch)`, or `criterion(outputs, batch, trainer)`, gives the mean loss of a batch; the
    number of its samples is `len(batch)` of the first tensor in it, or its `num_graphs`. The configuration
    may give validation and test their own criterion and monitors, or a custom evaluator.

    Raises:
        ConfigError: fields are missing or wrong; the error lists all of them.
    """

    arguments = None

    trainer: Any = None
    """The trainer, for criteria with a parameter for it; the trainer sets it."""

    def __init__(self, config: Config):
        self.config = config
        missing, problems = self.missing(), [*_wrong_evaluators(config)]
        if config.criterion is not None:
            with gathered(problems):
                self._training = self._judging("", core.Evaluator())
            with gathered(problems):
                evaluator = config.validation.validator or core.Evaluator()
                self._evaluating = self._judging("validation.validator.", evaluator)
            with gathered(problems):
                evaluator = config.testing.tester or core.Evaluator()
                self._testing = self._judging("testing.tester.", evaluator)
        with gathered(problems):
            self.whole_set_evaluator = self._validator = _custom(
                "validation.validator", config.validation.validator
            )
        with gathered(problems):
            self._tester = _custom("testing.tester", config.testing.tester)
        if missing or problems:
            raise ConfigError([*missing, *dict.fromkeys(problems)])

    def missing(self) -> list[str]:
        """The fields that the configuration lacks, one message each."""
        model, missing = self.config.model, []
        if not model:
            missing.append("model: is missing; write type: !pyobject my_package.MyModel and its arguments")
        elif not _is_named(model.get("type")):
            missing.append(
                f"model.type: is {model.get('type')!r}, a bare name; write !pyobject and the import path of "
                "the class"
            )
        if self.config.criterion is None:
            missing.append(f"criterion: is missing; write {_EXAMPLES['criterion']}")
        if not self.config.data:
            missing.append("data: is missing; write dataset: !pyobject my_package.MyData and its arguments")
        else:
            missing += self.wrong_dataset()
        return [*missing, "or name a whole task: task: !pyobject my_package.MyTask"] if missing else []

    def wrong_dataset(self) -> list[str]:
        """Problems of `data.dataset`."""
        dataset = self.config.data.get("dataset")
        if _is_named(dataset):
            return []
        problem = "is missing" if dataset is None else f"is {dataset!r}"
        return [f"data.dataset: {problem}; write !pyobject and the import path of the data set"]

    def find(self, value: Any, field: str, kind: str) -> Any:
        """The class or function that a field names; `kind`: model, criterion, apply_model or monitor.

        Raises:
            ConfigError: there is no such object, or it cannot be called.
        """
        return called(value, field, _EXAMPLES[kind])

    def apply(self, model: nn.Module, batch: Any) -> Any:
        """The model's outputs for a batch if there is no `apply_model`."""
        return model(batch)

    def _judging(self, within: str, evaluator: core.Evaluator) -> Judging:
        """The evaluation that an evaluator's fields describe; fields left out are the training's."""
        where = {
            name: name if getattr(evaluator, name) is None else f"{within}{name}"
            for name in ("criterion", "apply_model")
        }
        problems: list[str] = []
        apply = self.apply
        with gathered(problems):
            value = self.config.criterion if evaluator.criterion is None else evaluator.criterion
            criterion = Criterion(self.find(value, where["criterion"], "criterion"), where["criterion"])
        with gathered(problems):
            value = self.config.apply_model if evaluator.apply_model is None else evaluator.apply_model
            if value is not None:
                apply = self.find(value, where["apply_model"], "apply_model")
        with gathered(problems):
            monitors = Monitors(evaluator.evaluator_tasks, f"{within}evaluator_tasks", self.find)
        if problems:
            raise ConfigError(problems)
        return Judging(criterion, apply, monitors)

    def setup(self, context: RankContext) -> None:
        """Check that the evaluators' `device` fields match the device, which is known by now."""
        problems = _wrong_devices(self.config, context.device.type)
        if problems:
            raise ConfigError(problems)

    # --- What is trained ---------------------------------------------------------------------------

    def build_model(self) -> nn.Module:
        """Call `model.type` with the other fields of `model`."""
        arguments = resolved(dict(self.config.model), "model")
        model: nn.Module = construct(arguments.pop("type"), arguments, "model", "model.type")
        return model

    def build_data(self) -> Splits:
        """Call `data.dataset` with the other fields of `data`, and split the data set."""
        arguments = resolved(dict(self.config.data), "data")
        fractions = _shares(arguments.pop("split", [0.8, 0.1, 0.1]))
        dataset = construct(arguments.pop("dataset"), arguments, "data", "data.dataset")
        return Splits(*split(dataset, fractions, self.config.training.seed))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The criterion's mean times the number of samples."""
        judging, count = self._training, samples_in(batch)
        outputs = judging.apply(model, batch)
        return Loss(judging.criterion.mean(outputs, batch, self.trainer, training=True) * count, count)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum] | Evaluated:
        """Evaluate a batch by the criterion, and keep outputs and targets if there are monitors."""
        judging, count = self._evaluating, samples_in(batch)
        outputs = judging.apply(model, batch)
        sums: dict[str, Sum] = {"loss": (judging.criterion.mean(outputs, batch, self.trainer) * count, count)}
        if not judging.monitors:
            return sums
        return Evaluated(sums, (to_keep(outputs), to_keep(targets_in(batch))))

    def measure(self, kept: Sequence[Any]) -> Mapping[str, float]:
        """The monitors' metrics."""
        return self._evaluating.monitors.measure(kept)

    def test_task(self) -> Task:
        """A copy of this task with the test set's evaluator."""
        other = copy.copy(self)
        other._evaluating, other.whole_set_evaluator = self._testing, self._tester
        return other

    # --- State ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state of a custom validator."""
        return {} if self._validator is None else {"evaluator": self._validator.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a custom validator's state, if the checkpoint has one."""
        if self._validator is not None and "evaluator" in state:
            self._validator.load_state_dict(state["evaluator"])


def task_of(
    config: Config, given: Task | None = None, describe: Callable[[Config], Task] = ConfiguredTask
) -> Task:
    """The given task, else the one that the configuration names, else the one that it describes.

    Raises:
        ConfigError: it is not a Task, or cannot be made.
    """
    if given is None and config.task is None:
        return describe(config)
    task = validate_task(given) if given is not None else _named(config)
    beside = [field for field, stated in evaluators(config).items() if stated is not None]
    if beside:
        how = (
            f"is for a task described by model and criterion, but {type(task).__qualname__} evaluates "
            "by itself"
        )
        raise ConfigError([f"{field}: {how}, in evaluate(); drop it" for field in beside])
    return task


def _named(config: Config) -> Task:
    beside = [name for name in ("model", "data", "criterion") if getattr(config, name)]
    if beside:
        raise ConfigError([f"task: brings its own {', '.join(beside)}; drop them, or drop task"])
    make = called(config.task, "task", "!pyobject my_module.MyTask")
    return validate_task(construct(make, resolved(config.task_kwargs, "task_kwargs"), "task_kwargs", "task"))


def evaluators(config: Config) -> dict[str, core.Evaluator | None]:
    """The evaluators of the validation and the test set, from their fields."""
    return dict(zip(_TYPES, (config.validation.validator, config.testing.tester), strict=True))


def judges_alone(config: Config) -> bool:
    """Whether a custom class evaluates the validation set, on rank 0 alone."""
    return is_custom(config.validation.validator)


def is_custom(evaluator: core.Evaluator | None) -> bool:
    """Whether an evaluator is a custom class."""
    return evaluator is not None and evaluator.type is not None and not isinstance(evaluator.type, str)


def _custom(field: str, evaluator: core.Evaluator | None) -> CustomEvaluator | None:
    """The custom evaluator that a field names; None: it names none.

    Raises:
        ConfigError: it cannot be made.
    """
    if evaluator is None or not is_custom(evaluator):
        return None
    unused = [each for each in _FIELDS if getattr(evaluator, each) != getattr(_DEFAULT, each)]
    if unused:
        kind = repr(evaluator.type) if isinstance(evaluator.type, PyObject) else in_words(evaluator.type)
        raise ConfigError(
            [f"{field}.{each}: {kind} evaluates by itself; write it in kwargs, or drop it" for each in unused]
        )
    return CustomEvaluator(evaluator, field, _METHODS[field])


_FIELDS = ("criterion", "apply_model", "evaluator_tasks", "device")
_DEFAULT = core.Evaluator()


def _shares(given: Any) -> list[float]:
    """The fractions of the training, validation and test set.

    Raises:
        ConfigError: `data.split` is not three numbers.
    """
    fractions = given if isinstance(given, (list, tuple)) else []
    if len(fractions) != 3 or any(type(number) not in (int, float) for number in fractions):
        how = "three shares, of training, validation and test, such as [0.8, 0.1, 0.1]"
        raise ConfigError([f"data.split: is {given!r}, but takes {how}"])
    return list(fractions)


def _is_named(value: Any) -> bool:
    return isinstance(value, PyObject) or callable(value)


def _wrong_evaluators(config: Config) -> list[str]:
    """Problems of the evaluators' fields, and of their devices if `training.device` is not `auto`."""
    problems = []
    for field, given in evaluators(config).items():
        if given is None or is_custom(given):
            continue
        if given.type is not None and given.type not in _TYPES[field]:
            method = _METHODS[field]
            problems.append(
                f"{field}.type: is {given.type!r}, but the only names are {' and '.join(_TYPES[field])}; "
                "leave it out and write monitors in evaluator_tasks, or write !pyobject and the import path "
                f"of a class with {method}(model, data_loader)"
            )
        problems += [
            f"{field}.{each}: is for a custom class, but type names none; drop it"
            for each in ("args", "kwargs")
            if getattr(given, each)
        ]
    if config.training.device != "auto":
        problems += _wrong_devices(config, config.training.device)
    return problems


def _wrong_devices(config: Config, device: str) -> list[str]:
    return [
        f"{field}.device: is {given.device}, but training.device is {device}, and each rank evaluates on "
        "the device that it trains on; write the same device, or leave the field out"
        for field, given in evaluators(config).items()
        if given is not None and given.device not in ("auto", device)
    ]


def samples_in(batch: Any) -> int:
    """The number of samples in a batch: its `num_graphs`, else the length of its first tensor.

    Raises:
        ConfigError: there is no such tensor.
    """
    count = _samples(batch)
    if count is None:
        raise ConfigError(
            [
                f"criterion: the number of samples in a batch is unknown: it is {in_words(batch)}, with "
                "no tensor and no num_graphs; write a Task, whose loss returns the number"
            ]
        )
    return count


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
