"""The YAML of a training run, typed and validated.

The layout is QuantumGrav's: `parallel`, `training`, `model`, `data`, `validation`, `testing`,
`early_stopping`, `criterion`. `!pyobject a.b.C` names a Python object by its import path; reading a
file imports and calls nothing.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from trainers.core.fields import convert, suggestion

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]

DEVICES = ("auto", "cpu", "cuda", "xpu", "mps")


class ConfigError(Exception):
    """A configuration that cannot be used; its text names every problem with its path."""

    def __init__(self, problems: list[str], origin: str = "config"):
        self.problems = problems
        self.origin = origin
        super().__init__("\n".join(f"{origin}: {problem}" for problem in problems))

    def __reduce__(self) -> tuple[Any, ...]:  # it travels between ranks
        return ConfigError, (self.problems, self.origin)


class PyObject(msgspec.Struct, frozen=True):
    """A Python object by its import path, as `torch.optim.AdamW`."""

    path: str

    def resolve(self) -> Any:
        """Import it.

        Raises:
            ConfigError: there is no such module, or nothing of that name in it.
        """
        module, _, name = self.path.rpartition(".")
        missing = f"!pyobject {self.path}: "
        if not module:
            raise ConfigError([f"{missing}is a bare name; write its import path, as in my_package.{name}"])
        parts = module.split(".")
        for taken in range(len(parts), 0, -1):  # the path may lead into a class
            root = ".".join(parts[:taken])
            try:
                found: Any = sys.modules[root] if root in sys.modules else importlib.import_module(root)
            except ModuleNotFoundError as error:
                if error.name is None or not (root == error.name or root.startswith(f"{error.name}.")):
                    raise  # the module is there, and lacks one that it needs itself
                continue
            for part in (*parts[taken:], name):
                if not hasattr(found, part):
                    near = suggestion(part, dir(found), listed=False)
                    raise ConfigError([f"{missing}{root} has no {part}{near}"])
                found = getattr(found, part)
            return found
        raise ConfigError([f"{missing}there is no module {parts[0]} here; is its folder on PYTHONPATH?"])


def resolved(value: Any) -> Any:
    """The object that a `!pyobject` names; anything else as it is."""
    return value.resolve() if isinstance(value, PyObject) else value


def called(value: Any, field: str, example: str) -> Any:
    """The class or function that a field names.

    Raises:
        ConfigError: it is none, or there is none of that name.
    """
    found = resolved(value)
    if not callable(found):
        raise ConfigError([f"{field}: is {value!r}; write {example}"])
    return found


Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what torch's generators take


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of fields."""


class Parallel(Section, frozen=True, kw_only=True):
    """How ranks meet, and what DistributedDataParallel is told."""

    world_size: Positive | None = None
    """None, or a number that must be the one that the starter says."""
    rank: NotNegative | None = None
    master_addr: str = "localhost"
    """Used only where nothing else says where the ranks meet."""
    master_port: str | int = "12355"
    output_device: int | None = None
    backend: str | None = None
    """nccl, gloo, xccl (also as ccl or xpu); None: what fits the device."""
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = True
    static_graph: bool = False
    bucket_cap_mb: Positive | None = None
    communication_hook: Literal["fp16", "bf16"] | None = None
    """Gradients travel in this type; less is sent, and rounded."""
    sync_batchnorm: bool = False
    """BatchNorm over all ranks' samples; on accelerators alone."""
    start_timeout: Seconds = 1800.0
    """Seconds that ranks wait for each other until the first step is done."""
    timeout: Seconds = 600.0
    """The same from then on."""


class Schedule(Section, frozen=True, kw_only=True):
    """The learning rate as a function of the step, in parts of the optimizer's own."""

    type: Literal["constant", "linear", "cosine", "noam"] = "constant"
    warmup_steps: NotNegative = 0
    """Steps in which the rate rises linearly; the first has its share already."""
    steps: Positive | None = None
    """After which the floor is reached, and kept; None: those of the training."""
    floor: Fraction = 0.0
    """What is left at the end, in parts of the learning rate."""


class Scaling(Section, frozen=True, kw_only=True):
    """How learning rate and warmup grow with the number of ranks."""

    learning_rate: Literal["none", "linear", "sqrt", "capped"] = "none"
    """Times n, the square root of n, or at most `cap`, where n is the world size over the base's."""
    warmup: Literal["none", "linear", "sqrt", "capped"] = "none"
    base_world_size: Positive | None = None
    """For so many ranks the configuration's values are meant."""
    cap: Annotated[float, msgspec.Meta(ge=1)] = 4.0


class Training(Section, frozen=True, kw_only=True):
    """The loop."""

    path: str
    """Folder in which the run's own is made: checkpoints, metrics and resolved configuration."""
    run: str | None = None
    """Name of the run's own folder; None: the configuration's name, and in a castoff run that run's, too."""
    fresh: bool = False
    """Begin anew; what is in the run's folder is set aside."""
    num_epochs: Positive | None = None
    num_steps: Positive | None = None
    """Optimizer steps; one of the two must be given."""
    batch_size: Positive
    """Samples per rank and micro-batch; the global batch is this times accumulation and world size."""
    gradient_accumulation_steps: Positive = 1
    """Micro-batches of one optimizer step."""
    optimizer_type: Any
    optimizer_args: list[Any] = []
    optimizer_kwargs: dict[str, Any] = {}
    schedule: Schedule | None = None
    lr_scheduler_type: Any = None
    """One of torch's, instead of `schedule`."""
    lr_scheduler_args: list[Any] = []
    lr_scheduler_kwargs: dict[str, Any] = {}
    lr_scheduler_per: Literal["step", "epoch"] | None = None
    """When it is stepped; ReduceLROnPlateau: after each validation."""
    scaling: Scaling = Scaling()
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Type in which autocast computes; fp16 scales the loss, too."""
    compile: bool = False
    """Whether torch.compile makes the model faster before it is wrapped."""
    ema_decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Of an average of the weights that is validated and tested in their place."""
    num_workers: NotNegative = 0
    pin_memory: bool = False
    drop_last: bool = False
    prefetch_factor: Positive | None = None
    persistent_workers: bool = False
    multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = None
    shuffle: bool = True
    clip_grad_norm: Annotated[float, msgspec.Meta(gt=0)] | None = None
    non_finite: Literal["stop", "skip"] = "stop"
    """What a step does whose gradient is no number: end the training, or leave the weights alone."""
    log_every: Positive = 50
    """Steps between two lines of metrics."""
    checkpoint_at: Positive | None = None
    """Epochs between two checkpoints, beside those of each validation and of the end."""
    checkpoint_every_steps: Positive | None = None
    """Steps between two checkpoints, beside those."""
    keep_checkpoints: Annotated[int, msgspec.Meta(ge=2)] = 2
    """How many of the newest stay, beside the best."""
    collect_garbage_every: Positive | None = 1000
    """Steps between two collections, on all ranks at once; None: as Python does it."""


class Evaluator(Section, frozen=True, kw_only=True):
    """What QuantumGrav makes its validator and tester of."""

    device: Any = None
    criterion: Any = None
    apply_model: Any = None
    evaluator_tasks: Any = None
    compute_per_task: Any = None


class Evaluation(Section, frozen=True, kw_only=True):
    """Validation or testing: its loader, and when it happens."""

    every_steps: Positive | None = None
    """Steps between two validations; None: one at the end of each epoch."""
    batch_size: Positive | None = None
    """None: that of training."""
    num_workers: NotNegative = 0
    pin_memory: bool = False
    drop_last: bool = False
    """Has no effect: every sample counts, once."""
    prefetch_factor: Positive | None = None
    persistent_workers: bool = False
    shuffle: bool = False
    """Has no effect: sums do not depend on the order."""
    validator: Evaluator | None = None
    tester: Evaluator | None = None
    """Have no effect: the task judges, and what it measures is exact on any number of ranks."""


class EarlyStopping(Section, frozen=True, kw_only=True):
    """When training that gets no better ends."""

    type: Any = "DefaultEarlyStopping"
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class Wandb(Section, frozen=True, kw_only=True):
    """Weights & Biases."""

    project: str
    entity: str | None = None
    group: str | None = None
    tags: list[str] = []
    mode: Literal["offline", "online"] = "offline"


class Logging(Section, frozen=True, kw_only=True):
    """Where metrics go beside metrics.jsonl."""

    tensorboard: bool = False
    wandb: Wandb | None = None


class Config(Section, frozen=True, kw_only=True):
    """A training run."""

    training: Training
    parallel: Parallel = Parallel()
    name: str = "training"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    logging: Logging = Logging()
    task: Any = None
    """A `!pyobject`: a class or function that makes the Task, called with `task_kwargs`."""
    task_kwargs: dict[str, Any] = {}
    criterion: Any = None
    apply_model: Any = None
    model: dict[str, Any] = {}
    data: dict[str, Any] = {}
    validation: Evaluation = Evaluation()
    testing: Evaluation = Evaluation()
    early_stopping: EarlyStopping | None = None

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Config":
        """Read a YAML file; `overrides` are `training.num_epochs=3`, and win.

        Raises:
            ConfigError: it cannot be read, or with every problem that it has.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([f"cannot be read: {error}"], str(path)) from error
        return cls.of(read_yaml(text, str(path)), overrides, origin=str(path))

    @classmethod
    def of(
        cls, fields: "Mapping[str, Any] | Config", overrides: Iterable[str] = (), *, origin: str = "config"
    ) -> "Config":
        """A configuration from plain data, as `get_loader()` reads it.

        Raises:
            ConfigError: with every problem that it has.
        """
        if isinstance(fields, Config):
            return fields
        if not isinstance(fields, Mapping):
            raise ConfigError(["is no mapping of sections (training, model …)"], origin)
        data: dict[str, Any] = dict(fields)
        problems: list[str] = []
        told = [_override(data, assignment, problems) for assignment in overrides]
        if _tells(told, _RATE) and not _tells(told, _RATE_RULE):
            _take_literally(data)
        config: Config | None = convert(data, cls, "", problems)
        problems += _together(data)
        if problems or config is None:
            raise ConfigError(problems, origin)
        return config


def get_loader() -> type[yaml.SafeLoader]:
    """A YAML loader that knows `!pyobject`: `yaml.load(file, get_loader())`."""
    return _Loader


def read_yaml(text: str, origin: str = "config") -> Any:
    """The data of a YAML text.

    Raises:
        ConfigError: it is no YAML, or uses a tag that this project does not have.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ConfigError([" ".join(str(error).split())], origin) from error


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; a name that stands twice in it is no mistake to PyYAML, which takes the last."""
        seen: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            first = seen.setdefault((key.tag, key.value), key)
            if first is not key:
                raise yaml.constructor.ConstructorError(
                    f"{key.value} stands here first", first.start_mark, "and again", key.start_mark
                )
        return super().construct_mapping(node, deep)


def _pyobject(loader: yaml.SafeLoader, node: yaml.Node) -> PyObject:
    path = loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else ""
    if not isinstance(path, str) or not _is_import_path(path):
        raise yaml.constructor.ConstructorError(
            None, None, f"!pyobject takes an import path, as torch.optim.AdamW, not {path!r}", node.start_mark
        )
    return PyObject(path)


def _sweep(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    raise yaml.constructor.ConstructorError(
        None,
        None,
        f"!{suffix} is not known here: a sweep is an array of jobs, one configuration each",
        node.start_mark,
    )


_Loader.add_constructor("!pyobject", _pyobject)
_Loader.add_multi_constructor("!", _sweep)

_NUMBER = (
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z|[-+]\.[0-9]+\Z"),
)
"""What YAML 1.2 takes for a number and PyYAML, which reads YAML 1.1, for a text: 1e-4, -.5."""
_Loader.add_implicit_resolver(*_NUMBER, list("-+.0123456789"))


_RATE = ("training", "optimizer_kwargs", "lr")
_RATE_RULE = ("training", "scaling", "learning_rate")


def _tells(told: list[dict[str, Any]], field: tuple[str, ...]) -> bool:
    """Whether one of the overrides, each as the data that it stands for, sets a field."""
    for each in told:
        held: Any = each
        for name in field:
            held = held.get(name, msgspec.UNSET) if isinstance(held, Mapping) else msgspec.UNSET
        if held is not msgspec.UNSET:
            return True
    return False


def _take_literally(data: dict[str, Any]) -> None:
    """A learning rate that was asked for by hand is meant as it stands: no rule scales it."""
    training = data.get("training")
    rules = training.get("scaling") if isinstance(training, Mapping) else None
    if isinstance(training, Mapping) and isinstance(rules, Mapping) and "learning_rate" in rules:
        data["training"] = {**training, "scaling": {**rules, "learning_rate": "none"}}


def _override(data: dict[str, Any], assignment: str, problems: list[str]) -> dict[str, Any]:
    """Put an override into the data; what it says, as data of its own."""
    path, equals, text = assignment.partition("=")
    if not equals or not all(path.split(".")):
        problems.append(f"override {assignment!r}: write it as training.num_epochs=3")
        return {}
    *sections, last = path.split(".")
    held = data
    for section in sections:
        inner = held.get(section)
        held[section] = dict(inner) if isinstance(inner, Mapping) else {}
        held = held[section]
    try:
        held[last] = told = read_yaml(text)
    except ConfigError as error:
        problems.append(f"override {path}: {'; '.join(error.problems)}")
        return {}
    for name in reversed(path.split(".")):
        told = {name: told}
    return dict(told)


def _together(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with fields that are right one by one."""
    training = data.get("training")
    if not isinstance(training, Mapping):
        return []
    given = [name for name in ("num_epochs", "num_steps") if training.get(name) is not None]
    if not given:
        return ["training.num_epochs: is missing; say how long to train, with it or with training.num_steps"]
    if len(given) == 2:
        both = f"is {training['num_steps']!r} beside training.num_epochs: {training['num_epochs']!r}"
        return [f"training.num_steps: {both}; one of the two ends the training, so drop the other"]
    return []


def without_effect(config: Config) -> list[str]:
    """What a configuration says that changes nothing here, in words for the log."""
    said = []
    for path, value, instead in (
        ("validation.validator", config.validation.validator, "a task's evaluate() measures"),
        ("testing.tester", config.testing.tester, "a task's evaluate() measures"),
        ("validation.drop_last", config.validation.drop_last, "every sample counts, once"),
        ("testing.drop_last", config.testing.drop_last, "every sample counts, once"),
        ("validation.shuffle", config.validation.shuffle, "sums do not depend on the order"),
        ("testing.shuffle", config.testing.shuffle, "sums do not depend on the order"),
    ):
        if value:
            said.append(f"{path}: has no effect; {instead}")
    return said


def to_yaml(config: Config) -> str:
    """A configuration as a YAML text that `Config.load` reads back; objects by their import path."""
    return yaml.dump(plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_implicit_resolver(*_NUMBER, list("-+.0123456789"))  # such a text is written in quotes

_Dumper.add_representer(
    PyObject,
    lambda dumper, value: dumper.represent_scalar("!pyobject", value.path),
)


def plain(value: Any) -> Any:
    """A value in what YAML has: containers, texts, numbers, dates; classes and functions as PyObjects."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, PyObject):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {plain(item) for item in value}
    if isinstance(value, (bool, PyObject, date, bytes)) or value is None:
        return value
    if isinstance(value, Integral):  # numpy's, too
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)  # an enumeration's, too
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "__qualname__"):  # a class or function that Python code put here
        path = f"{value.__module__}.{value.__qualname__}"
        return PyObject(path) if _is_import_path(path) else path  # that of a lambda leads nowhere
    return repr(value)


def _is_import_path(path: str) -> bool:
    return all(part.isidentifier() for part in path.split("."))
