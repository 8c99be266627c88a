"""The fields of a training run, typed and validated.

The layout is QuantumGrav's: `parallel`, `training`, `model`, `data`, `validation`, `testing`,
`early_stopping`, `criterion`.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import convert, takes
from castoff.trainers.configuration.consistency import contradictions
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.overrides import Rate, one_training
from castoff.trainers.configuration.section import Fraction, Imported, NotNegative, Positive, Section
from castoff.trainers.configuration.shared import Loop, Ranks
from castoff.trainers.configuration.sweep import Choose, by_array
from castoff.trainers.configuration.synonyms import hint_from
from castoff.trainers.configuration.yaml_text import read_yaml_file


class Parallel(Ranks, frozen=True, kw_only=True):
    """How ranks connect, and the arguments of DistributedDataParallel."""

    rank: NotNegative | None = None
    """No effect: the launcher sets it."""
    output_device: int | None = None
    """Index of a device, as in DistributedDataParallel; no effect on a CPU."""
    find_unused_parameters: bool = False
    """Look in each step for parameters that the loss does not depend on. Costs time."""
    gradient_as_bucket_view: bool = True
    """Gradients are views into the buckets that are sent, which saves a copy of them."""
    static_graph: bool = False
    """Every step uses the same parameters. Refused with gradient accumulation, because torch does not
    support both together.
    """
    sync_batchnorm: bool = False
    """BatchNorm over the samples of all ranks. Accelerators only; on a CPU it is an error."""


class Schedule(Section, frozen=True, kw_only=True):
    """The learning rate as a function of the step, relative to the optimizer's `lr`."""

    type: Literal["constant", "linear", "cosine", "noam"] = "constant"
    """Shape of the learning rate after the warmup."""
    warmup_steps: NotNegative = 0
    """Optimizer steps in which the rate rises linearly; in the first step it is 1 / warmup_steps of the
    full rate.
    """
    steps: Positive | None = None
    """Optimizer steps, warmup included, after which the floor is reached and kept; left out: all steps of
    the training.
    """
    floor: Fraction = 0.0
    """The rate at the end, as a fraction of the configured rate."""


ScalingRule = Literal["none", "linear", "sqrt", "capped"]


class Scaling(Section, frozen=True, kw_only=True):
    """How learning rate and warmup grow with the number of ranks."""

    learning_rate: ScalingRule = "none"
    """Multiply the rate by n, by the square root of n, or by n but at most `cap`."""
    warmup: ScalingRule = "none"
    """The same for `schedule.warmup_steps`."""
    base_world_size: Positive | None = None
    """The number of ranks that the configuration's values are meant for; required with a rule."""
    cap: Annotated[float, msgspec.Meta(ge=1)] = 4.0
    """The largest factor of `capped`."""


class Freeze(Section, frozen=True, kw_only=True):
    """Modules that are frozen at first."""

    modules: list[str]
    """Names such as `encoder.layers.*`, in which `*` stands for anything but a dot, or classes such as
    `Block`."""
    until: Positive
    """The number of optimizer steps in which their parameters stay as they are, without weight decay."""


class Training(Loop, frozen=True, kw_only=True):
    """The training loop."""

    path: str
    """Folder in which the run's own folder is created."""
    num_epochs: Positive | None = None
    """Epochs to train. Either this or `num_steps` is required."""
    num_steps: Positive | None = None
    """Optimizer steps to train, in place of `num_epochs`."""
    batch_size: Positive
    """Samples of each rank and micro-batch. The global batch is this × `gradient_accumulation_steps` ×
    the number of ranks."""
    gradient_accumulation_steps: Positive = 1
    """Micro-batches of each rank in one optimizer step."""
    optimizer_type: Annotated[
        Any, takes("a !pyobject, such as optimizer_type: !pyobject torch.optim.AdamW")
    ] = None
    """The optimizer's class. Required, unless the task makes its `optimizers`."""
    optimizer_args: list[Any] = []
    """Its positional arguments after the parameters."""
    optimizer_kwargs: Annotated[
        dict[str, Any], msgspec.Meta(examples=[{"lr": 1e-3, "weight_decay": 0.01}])
    ] = {}
    """Its keyword arguments: `{lr: 1e-3}`."""
    schedule: Schedule | None = None
    """One of castoff's learning-rate schedules; left out: a constant rate."""
    lr_scheduler_type: Imported = None
    """The class of one of torch's schedulers, instead of `schedule`."""
    lr_scheduler_args: list[Any] = []
    """Its positional arguments after the optimizer."""
    lr_scheduler_kwargs: dict[str, Any] = {}
    """Its keyword arguments."""
    lr_scheduler_per: Literal["step", "epoch"] | None = None
    """What the scheduler counts, and so when it is stepped. Required with `lr_scheduler_type`, except with
    `castoff train gnn`, where it is `epoch`, as in QuantumGrav. ReduceLROnPlateau takes none: it is stepped
    after each validation."""
    scaling: Scaling = Scaling()
    """How learning rate and warmup grow with the number of ranks."""
    max_memory_per_gpu: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Fraction of its device's memory that each process may allocate; more ends it as out of memory. Left
    out: all. No effect on a CPU, nor on devices whose memory torch cannot limit; the log then has a note."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The type in which autocast computes. With fp16 the loss is scaled."""
    ema_decay: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Decay of a moving average of the weights, which is validated and tested in their place."""
    clip_grad_norm: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Maximum norm of the gradient; a larger one is scaled down to it."""
    freeze: list[Freeze] = []
    """Modules that are trained only after some steps. Not with `parallel.strategy: fsdp`."""
    check_first_step: bool = True
    """Check the first step of each start for mistakes that would otherwise stay unnoticed, and at
    each checkpoint that all ranks have the same weights."""
    log_every: Positive = 50
    """Optimizer steps between two lines of metrics."""
    checkpoint_at: Positive | None = None
    """Epochs between two checkpoints. Matters only with `validation.every_steps`: otherwise each epoch ends
    with a validation, and that with a checkpoint."""
    checkpoint_every_steps: Positive | None = None
    """Optimizer steps between two checkpoints, in addition to those before each validation and at the end."""


class Monitor(Section, frozen=True, kw_only=True):
    """A metric over all predictions at once that is not a mean over samples, such as F1."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """Name of the metric. One number is recorded as `val/NAME` in metrics.jsonl; several in a list, tensor or
    dict as `val/NAME/0` or `val/NAME/KEY`. In `early_stopping` the names have no `val/`."""
    monitor: Imported
    """A function of (predictions, targets); or a class or, with arguments, a function that makes one."""
    args: list[Any] = []
    """Positional arguments for making it."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments for making it."""


class Evaluator(Section, frozen=True, kw_only=True):
    """How a model that the configuration describes is validated, or tested."""

    type: Imported = None
    """A custom class with `validate` or `test`. `DefaultValidator`, `Validator`, `DefaultTester` and `Tester`
    stand for the default."""
    args: list[Any] = []
    """Positional arguments of such a class."""
    kwargs: dict[str, Any] = {}
    """Keyword arguments of such a class."""
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    """Each rank evaluates on the device that it trains on; another device is an error."""
    criterion: Imported = None
    """`criterion(outputs, batch)`; left out: the training's."""
    apply_model: Imported = None
    """`apply_model(model, batch)` returns the outputs; left out: the training's."""
    evaluator_tasks: list[Monitor] = []
    """Monitors: metrics of all predictions at once."""


class Evaluation(Section, frozen=True, kw_only=True):
    """The loader of a validation or test set."""

    batch_size: Positive | None = None
    """Samples of each rank; left out: that of training."""
    num_workers: NotNegative = 0
    """As in `training`."""
    pin_memory: bool = False
    """As in `training`."""
    drop_last: bool = False
    """No effect: every sample counts once."""
    prefetch_factor: Positive | None = None
    """As in `training`."""
    persistent_workers: bool = False
    """As in `training`."""
    shuffle: bool = False
    """No effect: sums do not depend on the order."""


class Validation(Evaluation, frozen=True, kw_only=True):
    """How the model is validated during training."""

    every_steps: Positive | None = None
    """Optimizer steps between two validations; left out: one at the end of each epoch."""
    validator: Evaluator | None = None
    """How the model is evaluated; left out: by the training's criterion, or by its task."""


class Testing(Evaluation, frozen=True, kw_only=True):
    """How the best model is tested at the end."""

    tester: Evaluator | None = None
    """How the model is tested; left out: as a validation without a `validator`."""


class EarlyStopping(Section, frozen=True, kw_only=True):
    """When a training that no longer improves ends."""

    type: Imported = "DefaultEarlyStopping"
    """The class that decides after each validation whether to stop."""
    args: list[Any] = []
    """Its positional arguments."""
    kwargs: Annotated[
        dict[str, Any], msgspec.Meta(examples=[{"patience": 5, "mode": "any", "tasks": {}}])
    ] = {}
    """Its keyword arguments."""
    tasks: dict[Any, Any] | None = None
    """The same as `kwargs.tasks`; give one of the two."""
    mode: Literal["any", "all"] | None = None
    """The same as `kwargs.mode`."""
    patience: Positive | None = None
    """The same as `kwargs.patience`."""


class Wandb(Section, frozen=True, kw_only=True):
    """Weights & Biases."""

    project: str
    """The project of Weights & Biases that the training is logged to."""
    name: str | None = None
    """Name of the wandb run; left out: the configuration's `name`."""
    entity: str | None = None
    """The wandb user or team."""
    group: str | None = None
    """The wandb group of runs; left out: the castoff run's id, with its members as job types."""
    tags: list[str] = []
    """Tags of the wandb run."""
    mode: Literal["offline", "online"] = "offline"
    """`offline` writes to the run's folder `wandb`, from where `wandb sync` uploads it. So does `online` if
    the service does not answer."""


class Mlflow(Section, frozen=True, kw_only=True):
    """MLflow."""

    experiment: str
    """The MLflow experiment that the training is logged to."""
    name: str | None = None
    """Name of the MLflow run; left out: the configuration's `name`."""
    tracking_uri: str | None = None
    """The server or store; left out: MLFLOW_TRACKING_URI, or else the run's folder `mlflow`."""
    tags: dict[str, str] = {}
    """Tags of the MLflow run, beside `castoff.run` and `castoff.member`."""


class Logging(Section, frozen=True, kw_only=True):
    """Where metrics are logged in addition to metrics.jsonl."""

    tensorboard: bool = False
    """Write event files to the run's folder `tensorboard`. Needs the package tensorboard."""
    wandb: Wandb | None = None
    """Log to Weights & Biases as well. Needs the package wandb."""
    mlflow: Mlflow | None = None
    """Log to MLflow as well. Needs the package mlflow-skinny, or mlflow."""


class Monitoring(Section, frozen=True, kw_only=True):
    """What is reported at log steps in addition to the metrics."""

    log_gradients: bool = False
    """The norm of each part's gradient, `gradients/PART`, after clipping."""
    log_weights: bool = False
    """The norm of each part's weights, `weights/PART`."""
    log_flops: bool = False
    """The operations per second of the model, `train/flops`, and their fraction of the devices' peak,
    `train/mfu`. They are counted once at each start, which takes as long as a step."""


class Profile(Section, frozen=True, kw_only=True):
    """Which steps torch.profiler records, to show what they spend their time on. Results do not change."""

    start: Annotated[int, msgspec.Meta(ge=2)] = msgspec.field(default=20, name="from")
    """The first recorded step, counted from 1 at each start, also at one that resumes; the step before it
    warms the profiler up."""
    steps: Positive = 5
    """Number of recorded steps."""
    ranks: list[NotNegative] | None = None
    """The ranks that record; left out: the first 16."""


class Member(Section, frozen=True, kw_only=True):
    """Which training of a sweep, or trial of a study, this is; castoff writes it."""

    number: NotNegative
    """Number of this training, from 0."""
    of: Positive | None = None
    """Number of trainings in the sweep; left out: this is a trial of a study."""
    values: dict[str, Any] = {}
    """Its values of the swept fields, by path, such as `training.batch_size: 16`."""


class Common(Section, frozen=True, kw_only=True):
    """The fields that every training has, whatever its task."""

    training: Training
    """The loop."""
    parallel: Parallel = Parallel()
    """How ranks connect, and the arguments of DistributedDataParallel."""
    name: str = "training"
    """Name of the training, and of its folder."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What rank 0 logs to standard error; other ranks log warnings and errors only."""
    logging: Logging = Logging()
    """Where metrics are logged in addition to metrics.jsonl."""
    monitoring: Monitoring = Monitoring()
    """What is reported at log steps in addition to the metrics."""
    profile: Profile | None = None
    """Record some steps with torch.profiler, to find out why training is slow; left out: none."""
    validation: Validation = Validation()
    """How good the model is, while it trains."""
    testing: Testing = Testing()
    """How good the best model is, at the end."""
    early_stopping: EarlyStopping | None = None
    """When a training that no longer improves ends; left out: never."""
    member: Member | None = None
    """Which training of a sweep this is. castoff writes it."""


class Config(Common, frozen=True, kw_only=True):
    """A training's configuration, typed and checked."""

    task: Imported = None
    """A class or function that makes the task. It brings its own model, data and criterion, so leave those
    fields out."""
    task_kwargs: dict[str, Any] = {}
    """Keyword arguments of `task`."""
    criterion: Imported = None
    """Without a task: `criterion(outputs, batch)` returns the mean loss of a batch, a tensor with one
    number. A third parameter gets the trainer if it is required, called `trainer`, or `*args`; validation
    and test pass it only if it is required."""
    apply_model: Imported = None
    """Without a task: `apply_model(model, batch)` returns the outputs; left out: `model(batch)`."""
    model: dict[str, Any] = {}
    """Without a task: `type: !pyobject my_package.MyModel` and its arguments."""
    data: dict[str, Any] = {}
    """Without a task: `dataset: !pyobject my_package.MyData`, its arguments, and `split`, the fractions for
    training, validation and test, [0.8, 0.1, 0.1] if left out."""

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = (), choose: Choose = by_array) -> "Config":
        """Read a YAML file; `overrides`, such as `training.num_epochs=3`, replace its values.

        If the file has sweeps, `choose` picks one training; default: this process's member of the job array.

        Raises:
            ConfigError: the file cannot be read or is invalid; the error lists every problem.
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
        """Make a configuration from plain data, such as `yaml.load(file, get_loader())` returns.

        Raises:
            ConfigError: the data are invalid; the error lists every problem.
            ValueError: there are overrides, but `fields` is a Config already.
        """
        if isinstance(fields, Config):
            if given := " ".join(overrides):
                raise ValueError(f"{given} cannot change a Config: pass them to Config.load or to train")
            return fields
        problems: list[Problem] = []
        document = one_training(fields, {}, overrides, choose, RATE, origin, problems)
        config = convert(document, cls, problems, hint=hint_from(document, cls))
        problems += [document.problem(*wrong) for wrong in contradictions(document.data, problems)]
        if problems or config is None:
            raise ConfigError(problems)
        return config


RATE = Rate(("training", "optimizer_kwargs", "lr"), ("training", "scaling", "learning_rate"))
