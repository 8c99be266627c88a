"""The YAML of `castoff train sedd`: every section, read, and what the core is told of it.

The sections and fields are those of the UniRef50 trainer that this one follows, and where it has no name for
something, the core's. Every count is of optimizer steps.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from launcher.typed import Problem
from launcher.typed.document import FieldPath, dotted
from launcher.typed.structure import convert
from trainers.configuration.config import (
    Fraction,
    Logging,
    Member,
    NotNegative,
    Positive,
    Seconds,
    Section,
    Seed,
)
from trainers.configuration.fields import ConfigError
from trainers.configuration.overrides import Rate, one_training
from trainers.configuration.sweep import Choose, by_array
from trainers.sedd import settings
from trainers.sedd.settings import Above
from trainers.sedd.start.words import IN_OWN_WORDS

DEFAULT_ITERATIONS = 100_000


class Training(Section, frozen=True, kw_only=True):
    """The loop."""

    work_dir: str = "trained"
    """Folder in which the run's own is made."""
    run: str | None = None
    fresh: bool = False
    resume_checkpoint: str | None = None
    """Of another run: what this one begins with, as long as its folder has none of its own."""
    n_iters: Positive | None = None
    """Optimizer steps; None, and no epochs: 100,000."""
    epochs: Positive | None = None
    batch_size: Positive = 16
    """Proteins of each rank and micro-batch."""
    accum: Positive = 4
    """Micro-batches of one optimizer step."""
    ema: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = 0.9995
    seed: Seed = 0
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    compile: bool = False
    non_finite: Literal["stop", "skip"] = "stop"
    log_freq: Positive = 100
    eval_freq: Positive = 2000
    snapshot_freq: Positive | None = 2000
    snapshot_freq_for_preemption: Positive | None = None
    """The smallest of the two and of validation.checkpoint_freq counts."""
    keep_checkpoints: Annotated[int, msgspec.Meta(ge=2)] = 2
    num_workers: NotNegative = 0
    pin_memory: bool = False
    prefetch_factor: Positive | None = None
    persistent_workers: bool = False
    multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = None
    shuffle: bool = True
    drop_last: bool = False
    collect_garbage_every: Positive | None = 1000


class Optim(Section, frozen=True, kw_only=True):
    """The optimizer."""

    optimizer: Literal["AdamW", "Adam"] = "AdamW"
    lr: Annotated[float, msgspec.Meta(ge=0)] = 5e-5
    """On scaling.base_world_size ranks."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Above = 1e-8
    weight_decay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    warmup: NotNegative = 5000
    """Steps in which the rate rises, on scaling.base_world_size ranks."""
    grad_clip: Above | None = 1.0


class LearningRate(Section, frozen=True, kw_only=True):
    """The learning rate after the warmup."""

    type: Literal["constant", "cosine_with_warmup", "linear_with_warmup"] = "cosine_with_warmup"
    min_lr_ratio: Fraction = 0.1
    """What is left of it at the end; constant has no end."""
    steps: Positive | None = None
    """After which that is reached; None: those of the training."""


class Scaling(Section, frozen=True, kw_only=True):
    """How learning rate and warmup grow with the number of ranks."""

    learning_rate: Literal["none", "linear", "sqrt", "capped"] = "linear"
    warmup: Literal["none", "linear", "sqrt", "capped"] = "linear"
    base_world_size: Positive = 1
    """For so many ranks optim.lr and optim.warmup are meant."""
    cap: Annotated[float, msgspec.Meta(ge=1)] = 4.0


class Model(settings.Model, frozen=True, kw_only=True):
    """The diffusion transformer, and how long its proteins are."""

    length: Positive | None = None
    """Another name of data.max_length."""


class Memory(settings.Memory, frozen=True, kw_only=True):
    """What saves memory."""

    mixed_precision: bool | Literal["bf16", "fp16"] = False
    """true: bf16."""
    max_memory_per_gpu: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Share of a device's memory that a process may take."""


class Monitoring(settings.Monitoring, frozen=True, kw_only=True):
    """What is looked at beside the losses."""

    log_gradients: bool = False
    """The norms of gradients, by the parts of the network."""
    log_weights: bool = False
    """Those of the weights."""


class Ddp(Section, frozen=True, kw_only=True):
    """What DistributedDataParallel is told."""

    find_unused_parameters: bool = False
    broadcast_buffers: bool | None = None
    """Has no effect: no buffer of the network changes."""
    gradient_as_bucket_view: bool = True
    static_graph: bool = False


class Parallel(Section, frozen=True, kw_only=True):
    """How ranks meet; as in the core."""

    world_size: Positive | None = None
    master_addr: str = "localhost"
    """Used only where nothing else says where the ranks meet, like the port."""
    master_port: str | int = "12355"
    backend: str | None = None
    bucket_cap_mb: Positive | None = None
    communication_hook: Literal["fp16", "bf16"] | None = None
    start_timeout: Seconds = 1800.0
    timeout: Seconds = 600.0


class Evaluation(settings.Evaluation, frozen=True, kw_only=True):
    """What is measured, and on how much at a time."""

    batch_size: Positive | None = None
    """None: that of training."""
    num_workers: NotNegative = 0


class Validation(Section, frozen=True, kw_only=True):
    """When the model is judged, and what follows."""

    eval_freq: Positive | None = None
    """Wins over training.eval_freq."""
    checkpoint_freq: Positive | None = None
    checkpoint_on_improvement: bool = True
    save_best_only: bool = False
    patience: Positive | None = None
    """Validations without a better loss, after which training ends; None: it does not."""
    min_delta: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """By so much a loss must be lower to be better."""
    val_batch_limit: Positive | None = None
    """Validate with so many batches' proteins at most; None: with all."""


class Settings(Section, frozen=True, kw_only=True):
    """All of it."""

    name: str = "sedd"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    training: Training = Training()
    optim: Optim = Optim()
    lr_schedule: LearningRate = LearningRate()
    scaling: Scaling = Scaling()
    data: settings.Data = settings.Data()
    model: Model = Model()
    graph: settings.Graph = settings.Graph()
    noise: settings.NoiseSchedule = settings.NoiseSchedule()
    curriculum: settings.Curriculum = settings.Curriculum()
    sampling: settings.Sampling = settings.Sampling()
    eval: Evaluation = Evaluation()
    validation: Validation = Validation()
    monitoring: Monitoring = Monitoring()
    memory: Memory = Memory()
    ddp: Ddp = Ddp()
    parallel: Parallel = Parallel()
    logging: Logging = Logging()
    member: Member | None = None


def read(
    fields: Any,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    choose: Choose = by_array,
    *,
    origin: str = "config",
) -> Settings:
    """Settings from plain data; `flags`, by the fields' paths, win over it, and overrides over both.

    `choose` takes one of the trainings that sweeps stand for: that of this process's array.

    A learning rate that an override gives is meant as it stands, so no rule scales it.

    Raises:
        ConfigError: with every problem that they have.
    """
    problems: list[Problem] = []
    document = one_training(fields, flags or {}, overrides, choose, RATE, origin, problems)
    read = convert(document, Settings, problems, hint=_by_its_name_here)
    if read is not None and not problems:
        problems += [document.problem(*wrong) for wrong in _together(read)]
    if problems or read is None:
        raise ConfigError(problems)
    return read


RATE = Rate(("optim", "lr"), ("scaling", "learning_rate"))


def _by_its_name_here(kind: str, path: FieldPath, known: list[str]) -> str:
    """The name here of a field that is unknown, but the core's."""
    name = IN_OWN_WORDS.get(dotted(path))
    return f"; here: {name}" if name else ""


def _together(given: Settings) -> list[tuple[FieldPath, str]]:
    """What is wrong with fields that are right one by one."""
    training, length, longest = given.training, given.model.length, given.data.max_length
    problems: list[tuple[FieldPath, str]] = []
    if training.n_iters is not None and training.epochs is not None:
        both = f"is {training.n_iters} beside training.epochs: {training.epochs}"
        message = f"{both}; one of the two ends the training, so drop the other"
        problems.append((("training", "n_iters"), message))
    if length is not None and longest not in (length, settings.Data().max_length):
        both = f"is {length} beside data.max_length: {longest}"
        message = f"{both}; both are the residues of the longest protein, so drop one"
        problems.append((("model", "length"), message))
    if given.ddp.static_graph and training.accum > 1:
        message = (
            "is true, but torch cannot accumulate gradients then, and training.accum is "
            f"{training.accum}; drop one of the two"
        )
        problems.append((("ddp", "static_graph"), message))
    return problems
