"""The fields of a training run, typed and validated.

The layout is QuantumGrav's: `parallel`, `training`, `model`, `data`, `validation`, `testing`,
`early_stopping`, `criterion`.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from launcher.typed import Problem
from launcher.typed.document import Document
from launcher.typed.structure import convert, takes
from trainers.configuration.consistency import contradictions
from trainers.configuration.fields import ConfigError
from trainers.configuration.overrides import Rate, one_training
from trainers.configuration.section import Fraction, Imported, NotNegative, Positive, Section
from trainers.configuration.shared import Loop, Ranks
from trainers.configuration.sweep import Choose, by_array
from trainers.configuration.synonyms import hint_from
from trainers.configuration.yaml_text import read_yaml_file


class Parallel(Ranks, frozen=True, kw_only=True):
    """How ranks meet, and the arguments of DistributedDataParallel."""

    rank: NotNegative | None = None
    """No effect: the launcher sets it."""
    output_device: int | None = None
    """The index of a device, as in DistributedDataParallel; no effect on a CPU."""
    find_unused_parameters: bool = False
    """Look in each step for parameters that the loss does not depend on; it costs time."""
    gradient_as_bucket_view: bool = True
    """Gradients lie in the buckets that are sent, and not there as well."""
    static_graph: bool = False
    """The same parameters are used in each step. Refused beside accumulation, which torch does not
    support with it."""
    sync_batchnorm: bool = False
    """BatchNorm over the samples of all ranks. Accelerators only; on a CPU it is an error."""


class Schedule(Section, frozen=True, kw_only=True):
    """The learning rate as a function of the step, in parts of the optimizer's own."""

    type: Literal["constant", "linear", "cosine", "noam"] = "constant"
    """The learning rate after the warmup."""
    warmup_steps: NotNegative = 0
    """Optimizer steps in which the rate rises linearly; the first has 1 / warmup_steps already."""
    steps: Positive | None = None
    """Optimizer steps, the warmup among them, after which the floor is reached, and kept; left out: those
    of the training."""
    floor: Fraction = 0.0
    """What is left at the end, in parts of the learning rate."""


ScalingRule = Literal["none", "linear", "sqrt", "capped"]


class Scaling(Section, frozen=True, kw_only=True):
    """How learning rate and warmup grow with the number of ranks."""

    learning_rate: ScalingRule = "none"
    """The rate times n, times the square root of n, or times n but at most `cap`."""
    warmup: ScalingRule = "none"
    """The same for `schedule.warmup_steps`."""
    base_world_size: Positive | None = None
    """The number of ranks for which the configuration's values are meant; required beside a rule."""
    cap: Annotated[float, msgspec.Meta(ge=1)] = 4.0
    """The largest factor of `capped`."""


class Training(Loop, frozen=True, kw_only=True):
    """The loop."""

    path: str
    """Folder in which the run's own folder is made."""
    num_epochs: Positive | None = None
    """Epochs to train. Either this or `num_steps` is required."""
    num_steps: Positive | None = None
    """Optimizer steps to train, in place of `num_epochs`."""
    batch_size: Positive
    """Samples of each rank and micro-batch. The global batch is this × `gradient_accumulation_steps` ×
    the number of ranks."""
    gradient_accumulation_steps: Positive = 1
    """Micro-batches of each rank in one optimizer step."""
    optimizer_type: Annotated[Any, takes("a !pyobject, as in optimizer_type: !pyobject torch.optim.AdamW")]
    """The optimizer."""
    optimizer_args: list[Any] = []
    """What it is called with after the parameters."""
    optimizer_kwargs: Annotated[
        dict[str, Any], msgspec.Meta(examples=[{"lr": 1e-3, "weight_decay": 0.01}])
    ] = {}
    """The same by name: `{lr: 1e-3}`."""
    schedule: Schedule | None = None
    """castoff's own schedules of the learning rate; left out: a constant rate."""
    lr_scheduler_type: Imported = None
    """One of torch's schedulers instead."""
    lr_scheduler_args: list[Any] = []
    """What that is called with after the optimizer."""
    lr_scheduler_kwargs: dict[str, Any] = {}
    """The same by name."""
    lr_scheduler_per: Literal["step", "epoch"] | None = None
    """What it counts, and so when it is stepped; required beside it, except with `castoff train gnn`,
    where it is `epoch`, as in QuantumGrav. ReduceLROnPlateau takes none: it is stepped after each
    validation."""
    scaling: Scaling = Scaling()
    """How learning rate and warmup grow with the number of ranks."""
    max_memory_per_gpu: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """The part of its device's memory that each process may take; a tensor beyond that is out of memory.
    Left out: all. No effect on a CPU, nor where torch cannot limit it; the log says so."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The type in which autocast computes; with fp16 the loss is scaled, too."""
    ema_decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Decay of an average of the weights, which is validated and tested in their place."""
    clip_grad_norm: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """The largest norm of the gradient; a larger one is scaled down to it."""
    check_first_step: bool = True
    """Check the first step of each start for mistakes that would otherwise stay silent, and at each
    checkpoint whether all ranks have the same weights. A resumed run may have another value."""
    log_every: Positive = 50
    """Optimizer steps between two lines of measures."""
    checkpoint_at: Positive | None = None
    """Epochs between two checkpoints. Matters only with `validation.every_steps`, since otherwise each
    epoch ends with a validation."""
    checkpoint_every_steps: Positive | None = None
    """Optimizer steps between two checkpoints, beside those before each validation and at the end."""


class Monitor(Section, frozen=True, kw_only=True):
    """A measure over all predictions at once, which is not a mean over samples: an F1 score, say."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The name of what it gives. One number is `val/NAME` in metrics.jsonl, several in a list, tensor or
    dict are `val/NAME/0` and `val/NAME/KEY`. Early stopping knows them without `val/`."""
    monitor: Imported
    """A function of (predictions, targets); or a class, or with arguments a function, that makes one."""
    args: list[Any] = []
    """What it is made with."""
    kwargs: dict[str, Any] = {}
    """The same by name."""


class Evaluator(Section, frozen=True, kw_only=True):
    """How a model that the configuration describes is validated, or tested."""

    type: Imported = None
    """A class of the user's own with `validate` or `test`. `DefaultValidator` and `Validator`, or
    `DefaultTester` and `Tester`, mean what happens without it."""
    args: list[Any] = []
    """What such a class is called with."""
    kwargs: dict[str, Any] = {}
    """The same by name."""
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    """That which trains, since each rank evaluates where it trains; another is an error."""
    criterion: Imported = None
    """`criterion(outputs, batch)`, as in training; left out: the training's."""
    apply_model: Imported = None
    """`apply_model(model, batch)` gives the outputs; left out: the training's."""
    evaluator_tasks: list[Monitor] = []
    """Monitors: measures of all predictions at once."""


class Evaluation(Section, frozen=True, kw_only=True):
    """The loader of a set that is only looked at."""

    batch_size: Positive | None = None
    """Samples of each rank; left out: that of training."""
    num_workers: NotNegative = 0
    """As in `training`."""
    pin_memory: bool = False
    """As in `training`."""
    drop_last: bool = False
    """No effect: every sample counts, once."""
    prefetch_factor: Positive | None = None
    """As in `training`."""
    persistent_workers: bool = False
    """As in `training`."""
    shuffle: bool = False
    """No effect: sums do not depend on the order."""


class Validation(Evaluation, frozen=True, kw_only=True):
    """How good the model is, while it trains."""

    every_steps: Positive | None = None
    """Optimizer steps between two validations; left out: one at the end of each epoch."""
    validator: Evaluator | None = None
    """How the model is evaluated; left out: by the training's criterion, or as its task does it."""


class Testing(Evaluation, frozen=True, kw_only=True):
    """How good the best model is, at the end."""

    tester: Evaluator | None = None
    """How the model is tested; left out: as in a validation without a validator."""


class EarlyStopping(Section, frozen=True, kw_only=True):
    """When training that gets no better ends."""

    type: Imported = "DefaultEarlyStopping"
    """What decides after each validation whether it is time to stop."""
    args: list[Any] = []
    """What it is called with."""
    kwargs: Annotated[
        dict[str, Any], msgspec.Meta(examples=[{"patience": 5, "mode": "any", "tasks": {}}])
    ] = {}
    """The same by name."""
    tasks: dict[Any, Any] | None = None
    """The same as `kwargs.tasks`; one of the two."""
    mode: Literal["any", "all"] | None = None
    """The same as `kwargs.mode`."""
    patience: Positive | None = None
    """The same as `kwargs.patience`."""


class Wandb(Section, frozen=True, kw_only=True):
    """Weights & Biases."""

    project: str
    """The project of Weights & Biases that the training is logged to."""
    name: str | None = None
    """Name of the run there; left out: the configuration's `name`."""
    entity: str | None = None
    """The user or team there."""
    group: str | None = None
    """The group of runs there."""
    tags: list[str] = []
    """Tags of the run there."""
    mode: Literal["offline", "online"] = "offline"
    """`offline` writes to the run's folder `wandb`, from where `wandb sync` uploads it."""


class Logging(Section, frozen=True, kw_only=True):
    """Where metrics go beside metrics.jsonl."""

    tensorboard: bool = False
    """Write event files to the run's folder `tensorboard`. Needs the package tensorboard."""
    wandb: Wandb | None = None
    """Log to Weights & Biases, too. Needs the package wandb."""


class Monitoring(Section, frozen=True, kw_only=True):
    """What is reported at log steps beside the measures."""

    log_gradients: bool = False
    """The norm of each part's gradient, `gradients/PART`, after clipping."""
    log_weights: bool = False
    """The norm of each part's weights, `weights/PART`."""


class Member(Section, frozen=True, kw_only=True):
    """Which of a sweep's trainings this is, or of a study's trials; castoff writes it."""

    number: NotNegative
    """Which one, from 0."""
    of: Positive | None = None
    """How many trainings there are; left out: it is a trial."""
    values: dict[str, Any] = {}
    """The values of its own, by their paths, as `training.batch_size: 16`."""


class Common(Section, frozen=True, kw_only=True):
    """What every training has, whatever its task."""

    training: Training
    """The loop."""
    parallel: Parallel = Parallel()
    """How ranks meet, and what DistributedDataParallel is called with."""
    name: str = "training"
    """Name of the training, and of its folder."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What rank 0 logs on standard error; other ranks log warnings and errors only."""
    logging: Logging = Logging()
    """Where measures go beside metrics.jsonl."""
    monitoring: Monitoring = Monitoring()
    """What is logged beside the measures."""
    validation: Validation = Validation()
    """How good the model is, while it trains."""
    testing: Testing = Testing()
    """How good the best model is, at the end."""
    early_stopping: EarlyStopping | None = None
    """When training that gets no better ends; left out: never."""
    member: Member | None = None
    """Which training of a sweep this is. castoff writes it."""


class Config(Common, frozen=True, kw_only=True):
    """A training run."""

    task: Imported = None
    """A class or function that makes the task. It brings its own model, data and criterion, so those
    fields stay empty beside it."""
    task_kwargs: dict[str, Any] = {}
    """What `task` is called with."""
    criterion: Imported = None
    """Without a task: `criterion(outputs, batch)` gives the mean loss of a batch, a tensor with one
    number. A third parameter gets the trainer if it is required, called `trainer`, or `*args`; validation
    and test pass it only if it is required."""
    apply_model: Imported = None
    """Without a task: `apply_model(model, batch)` gives the outputs; left out: `model(batch)`."""
    model: dict[str, Any] = {}
    """Without a task: `type: !pyobject my_package.MyModel`, and what that is called with."""
    data: dict[str, Any] = {}
    """Without a task: `dataset: !pyobject my_package.MyData`, what that is called with, and `split`, the
    shares of training, validation and test, [0.8, 0.1, 0.1] if left out."""

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = (), choose: Choose = by_array) -> "Config":
        """Read a YAML file; `overrides` are `training.num_epochs=3`, and win.

        `choose` takes one of the trainings that sweeps stand for: that of this process's array.

        Raises:
            ConfigError: it cannot be read, or with every problem that it has.
        """
        return cls.of(read_yaml_file(path), overrides, choose)

    @classmethod
    def of(
        cls,
        fields: "Mapping[str, Any] | Document | Config",
        overrides: Iterable[str] = (),
        choose: Choose = by_array,
        *,
        origin: str = "config",
    ) -> "Config":
        """A configuration from plain data, as `get_loader()` reads it.

        Raises:
            ConfigError: with every problem that it has.
            ValueError: there are overrides for a Config, which has been read.
        """
        if isinstance(fields, Config):
            if given := " ".join(overrides):
                raise ValueError(f"{given} cannot change a Config: give these to Config.load, or to train")
            return fields
        problems: list[Problem] = []
        document = one_training(fields, {}, overrides, choose, RATE, origin, problems)
        config = convert(document, cls, problems, hint=hint_from(document, cls))
        problems += [document.problem(*wrong) for wrong in contradictions(document.data, problems)]
        if problems or config is None:
            raise ConfigError(problems)
        return config


RATE = Rate(("training", "optimizer_kwargs", "lr"), ("training", "scaling", "learning_rate"))
