"""The fields of a training run, typed and validated.

The layout is QuantumGrav's: `parallel`, `training`, `model`, `data`, `validation`, `testing`,
`early_stopping`, `criterion`.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from trainers.core.fields import ConfigError, convert
from trainers.core.overrides import override, put, tells
from trainers.core.sweep import Choose, by_array
from trainers.core.yaml_text import read_yaml_file

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # what torch's generators take

DEVICES = ("auto", "cpu", "cuda", "xpu", "mps")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of fields."""

    def __getitem__(self, name: str) -> Any:
        """A field by its name, as of the plain data that the section was made of."""
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


class Parallel(Section, frozen=True, kw_only=True):
    """How ranks meet, and what DistributedDataParallel is told."""

    world_size: Positive | None = None
    """None, or a number that must be the one that the launcher says."""
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
    resume_checkpoint: str | None = None
    """A checkpoint of another run: what this one goes on from as long as its folder has none of its own."""
    num_epochs: Positive | None = None
    num_steps: Positive | None = None
    """Optimizer steps; one of the two must be given."""
    batch_size: Positive
    """Samples per rank and micro-batch; the global batch is this times accumulation and world size."""
    gradient_accumulation_steps: Positive = 1
    """Micro-batches of one optimizer step."""
    optimizer_type: Any
    optimizer_args: list[Any] = []
    optimizer_kwargs: Annotated[
        dict[str, Any], msgspec.Meta(examples=[{"lr": 1e-3, "weight_decay": 0.01}])
    ] = {}
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
    max_memory_per_gpu: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Part of an accelerator's memory that a process may take; None: all."""
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
    check_first_step: bool = True
    """Look for silent mistakes in the first step of each start; at checkpoints, whether ranks agree."""
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


class Monitor(Section, frozen=True, kw_only=True):
    """A measure over all predictions at once, which is no mean over samples: an F1 score, say."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    monitor: Any
    """A function of (predictions, targets), or a class or function that makes one of `args` and `kwargs`."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class Evaluator(Section, frozen=True, kw_only=True):
    """How a model that the configuration describes is validated, or tested."""

    type: Any = None
    """A class of the user's own with `validate` or `test`, which rank 0 alone calls with the whole set; None:
    the one that all ranks share, also under QuantumGrav's names for it."""
    args: list[Any] = []
    """Of such a class."""
    kwargs: dict[str, Any] = {}
    """The same, by name."""
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    """The one that trains, since each rank judges where it trains."""
    criterion: Any = None
    """None: the training's."""
    apply_model: Any = None
    """None: the training's."""
    evaluator_tasks: list[Monitor] = []


class Evaluation(Section, frozen=True, kw_only=True):
    """The loader of a set that is only looked at."""

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


class Validation(Evaluation, frozen=True, kw_only=True):
    """How good the model is, while it trains."""

    every_steps: Positive | None = None
    """Steps between two validations; None: one at the end of each epoch."""
    validator: Evaluator | None = None


class Testing(Evaluation, frozen=True, kw_only=True):
    """How good the best model is, at the end."""

    tester: Evaluator | None = None


class EarlyStopping(Section, frozen=True, kw_only=True):
    """When training that gets no better ends."""

    type: Any = "DefaultEarlyStopping"
    args: list[Any] = []
    kwargs: Annotated[
        dict[str, Any], msgspec.Meta(examples=[{"patience": 5, "mode": "any", "tasks": {}}])
    ] = {}
    tasks: dict[Any, Any] | None = None
    """The same as in `kwargs`, as are the two below."""
    mode: Literal["any", "all"] | None = None
    patience: Positive | None = None


class Wandb(Section, frozen=True, kw_only=True):
    """Weights & Biases."""

    project: str
    name: str | None = None
    """Of the run there; None: the configuration's."""
    entity: str | None = None
    group: str | None = None
    tags: list[str] = []
    mode: Literal["offline", "online"] = "offline"


class Logging(Section, frozen=True, kw_only=True):
    """Where metrics go beside metrics.jsonl."""

    tensorboard: bool = False
    wandb: Wandb | None = None


class Monitoring(Section, frozen=True, kw_only=True):
    """What is told at log steps beside the measures."""

    log_gradients: bool = False
    """The norms of gradients, by the parts of the model."""
    log_weights: bool = False
    """Those of the weights."""


class Member(Section, frozen=True, kw_only=True):
    """Which of a sweep's trainings this is, or of a study's trials; castoff writes it."""

    number: NotNegative
    of: Positive | None = None
    """How many there are; None: nobody knows how many trials there will be."""
    values: dict[str, Any] = {}
    """What it has for its own, by the fields' paths."""


class Config(Section, frozen=True, kw_only=True):
    """A training run."""

    training: Training
    parallel: Parallel = Parallel()
    name: str = "training"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    logging: Logging = Logging()
    monitoring: Monitoring = Monitoring()
    task: Any = None
    """A `!pyobject`: a class or function that makes the Task, called with `task_kwargs`."""
    task_kwargs: dict[str, Any] = {}
    criterion: Any = None
    apply_model: Any = None
    model: dict[str, Any] = {}
    data: dict[str, Any] = {}
    validation: Validation = Validation()
    testing: Testing = Testing()
    early_stopping: EarlyStopping | None = None
    member: Member | None = None

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = (), choose: Choose = by_array) -> "Config":
        """Read a YAML file; `overrides` are `training.num_epochs=3`, and win.

        `choose` takes one of the trainings that sweeps stand for: that of this process's array.

        Raises:
            ConfigError: it cannot be read, or with every problem that it has.
        """
        return cls.of(read_yaml_file(path), overrides, choose, origin=str(path))

    @classmethod
    def of(
        cls,
        fields: "Mapping[str, Any] | Config",
        overrides: Iterable[str] = (),
        choose: Choose = by_array,
        *,
        origin: str = "config",
    ) -> "Config":
        """A configuration from plain data, as `get_loader()` reads it.

        Raises:
            ConfigError: with every problem that it has.
        """
        if isinstance(fields, Config):
            return fields
        if not isinstance(fields, Mapping):
            raise ConfigError(["is no mapping of sections (training, model …)"], origin)
        problems: list[str] = []
        data = choose(overridden(fields, {}, overrides, problems), problems)
        if data is None:
            raise ConfigError(problems, origin)
        config: Config | None = convert(data, cls, "", problems)
        problems += contradictions(data)
        if problems or config is None:
            raise ConfigError(problems, origin)
        return config


_RATE = "training.optimizer_kwargs.lr"
_RATE_RULE = "training.scaling.learning_rate"


def overridden(
    fields: Mapping[str, Any], flags: Mapping[str, Any], overrides: Iterable[str], problems: list[str]
) -> dict[str, Any]:
    """Plain data with what is set from outside: `flags` by the fields' paths, and overrides, which win.

    A learning rate that is given so is meant as it stands: no rule scales it, unless one is given, too.
    What is wrong with an override comes to `problems`.
    """
    data = dict(fields)
    for path, value in flags.items():
        put(data, path, value)
    told = [override(data, assignment, problems) for assignment in overrides]
    if (_RATE in flags or tells(told, _RATE)) and not (_RATE_RULE in flags or tells(told, _RATE_RULE)):
        _take_literally(data)
    return data


def _take_literally(data: dict[str, Any]) -> None:
    """Have no rule scale the learning rate."""
    training = data.get("training")
    rules = training.get("scaling") if isinstance(training, Mapping) else None
    if isinstance(training, Mapping) and isinstance(rules, Mapping) and "learning_rate" in rules:
        data["training"] = {**training, "scaling": {**rules, "learning_rate": "none"}}


def contradictions(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with fields of a training that are right one by one."""
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


def without_effect(config: Config, *, limits_memory: bool = True) -> list[str]:
    """What a configuration says that changes nothing here, in words for the log.

    `limits_memory`: whether torch can, on the device that is there.
    """
    training = config.training
    parts: dict[str, Evaluation] = {"validation": config.validation, "testing": config.testing}
    said: list[tuple[str, object, str]] = [
        (
            "training.max_memory_per_gpu",
            training.max_memory_per_gpu is not None and not limits_memory,
            "torch limits no process's memory on this device",
        ),
        ("parallel.rank", config.parallel.rank is not None, "the launcher says it"),
        (
            "training.checkpoint_at",
            training.checkpoint_at and config.validation.every_steps is None,
            "without validation.every_steps each epoch ends with a checkpoint",
        ),
    ]
    for name, part in parts.items():
        said += [
            (f"{name}.drop_last", part.drop_last, "every sample counts, once"),
            (f"{name}.shuffle", part.shuffle, "sums do not depend on the order"),
        ]
    loaders: dict[str, Training | Evaluation] = {"training": training, **parts}
    for name, loaded in loaders.items():
        if not loaded.num_workers:
            why = f"{name}.num_workers is 0, and workers alone do so"
            said += [
                (f"{name}.{field}", getattr(loaded, field), why)
                for field in ("prefetch_factor", "persistent_workers")
            ]
    return [f"{path}: has no effect; {why}" for path, given, why in said if given]
