"""The YAML of `castoff train sedd`: its sections, and how they are read.

Sections and fields are named as in the UniRef50 trainer that this one follows, or else as in the core. Every
count is of optimizer steps.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import Document, FieldPath, dotted
from castoff.launcher.typed.structure import Hint, convert
from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.consistency import of_strategy
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.overrides import Rate, one_training
from castoff.trainers.configuration.section import Fraction, NotNegative, Positive, Section
from castoff.trainers.configuration.shared import Loop, Ranks
from castoff.trainers.configuration.sweep import Choose, by_array
from castoff.trainers.configuration.synonyms import hint_from
from castoff.trainers.sedd import settings
from castoff.trainers.sedd.settings import Above
from castoff.trainers.sedd.start.words import IN_OWN_WORDS, in_own_words

DEFAULT_ITERATIONS = 100_000


class Training(Loop, frozen=True, kw_only=True):
    """The training loop."""

    work_dir: str = "trained"
    """Folder in which the run's own folder is made."""
    n_iters: Positive | None = None
    """Optimizer steps to train. Without this and `epochs`: 100,000."""
    epochs: Positive | None = None
    """Epochs to train, in place of `n_iters`."""
    batch_size: Positive = 16
    """Proteins per rank and micro-batch; a step has this × `accum` × the number of ranks."""
    accum: Positive = 4
    """Micro-batches per rank in one optimizer step."""
    ema: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = 0.9995
    """Decay of the weights' moving average, which validation and generation use; null: no average."""
    log_freq: Positive = 100
    """Optimizer steps between two lines of metrics."""
    eval_freq: Positive = 2000
    """Optimizer steps between two validations; `validation.eval_freq` overrides it."""
    snapshot_freq: Positive | None = 2000
    """Optimizer steps between two checkpoints; there is also one before each validation and one at the end.
    Null: only those."""
    snapshot_freq_for_preemption: Positive | None = None
    """Like `snapshot_freq`: a run resumes from any checkpoint, so the smallest of these two and
    `validation.checkpoint_freq` applies."""


class Optim(Section, frozen=True, kw_only=True):
    """The optimizer."""

    optimizer: Literal["AdamW", "Adam"] = "AdamW"
    """One of torch.optim."""
    lr: Annotated[float, msgspec.Meta(ge=0)] = 5e-5
    """The learning rate on `scaling.base_world_size` ranks."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """Decay rates of the gradient's moving averages, as in torch."""
    eps: Above = 1e-8
    """Term added to the denominator, as in torch."""
    weight_decay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Weight decay, as in torch."""
    warmup: NotNegative = 5000
    """Optimizer steps in which the rate rises linearly, on `scaling.base_world_size` ranks."""
    grad_clip: Above | None = 1.0
    """Largest norm of the gradient; a larger gradient is scaled down to it. Null: no limit. Values from other
    programs must be converted."""


class LearningRate(Section, frozen=True, kw_only=True):
    """The learning rate after the warmup."""

    type: Literal["constant", "cosine_with_warmup", "linear_with_warmup"] = "cosine_with_warmup"
    """How the learning rate falls after the warmup."""
    min_lr_ratio: Fraction = 0.1
    """Learning rate at the end, as a share of the peak. No effect on `constant`."""
    steps: Positive | None = None
    """Optimizer steps, including the warmup, until the rate is at its lowest; left out: those of the
    training."""


class Scaling(core.Scaling, frozen=True, kw_only=True):
    """How learning rate and warmup, those of `optim`, grow with the number of ranks."""

    learning_rate: core.ScalingRule = "linear"
    warmup: core.ScalingRule = "linear"
    """The rule for `optim.warmup`."""
    base_world_size: Positive = 1
    """The number of ranks for which the values in `optim` are meant."""


class Model(settings.Model, frozen=True, kw_only=True):
    """The diffusion transformer, and the length of its proteins."""

    length: Positive | None = None
    """Another name of `data.max_length`."""


class Memory(settings.Memory, frozen=True, kw_only=True):
    """Settings that save memory."""

    mixed_precision: bool | Literal["bf16", "fp16"] = False
    """The type in which autocast computes; true: bf16."""
    max_memory_per_gpu: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Share of its device's memory that each process may use; more ends it as out of memory. Left out:
    all."""


class Monitoring(core.Monitoring, frozen=True, kw_only=True):
    """What is measured besides the losses."""

    sample_frequency: Positive | None = None
    """Optimizer steps between two generations, each after a validation; left out: after every validation."""


class Ddp(Section, frozen=True, kw_only=True):
    """The arguments of DistributedDataParallel."""

    find_unused_parameters: bool = False
    """Look for parameters without effect on the loss. Not needed: all of them have one."""
    broadcast_buffers: bool | None = None
    """No effect: the network has no buffer that changes."""
    gradient_as_bucket_view: bool = True
    """Keep gradients only in the buckets that are sent, which saves memory."""
    static_graph: bool = False
    """As in torch. Refused with `training.accum` above 1, which torch does not support."""


class Evaluation(settings.Evaluation, frozen=True, kw_only=True):
    """What is measured, and in batches of which size."""

    batch_size: Positive | None = None
    """Proteins per rank in validation and test; left out: as in training."""
    num_workers: NotNegative = 0
    """Loader workers per rank, as in `training`."""


class Validation(Section, frozen=True, kw_only=True):
    """When the model is validated, and when training ends because it no longer improves."""

    eval_freq: Positive | None = None
    """Optimizer steps between two validations; left out: `training.eval_freq`."""
    checkpoint_freq: Positive | None = None
    """See `training.snapshot_freq_for_preemption`."""
    checkpoint_on_improvement: bool = True
    """No effect: each validation follows a checkpoint, and the best is kept."""
    save_best_only: bool = False
    """No effect: a run resumes from the newest checkpoint."""
    patience: Positive | None = None
    """Training ends after this many validations in a row without a better loss; left out: it does not."""
    min_delta: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """A loss must be lower by more than this to be better."""
    val_batch_limit: Positive | None = None
    """Validate with at most (this × batch size) proteins, on any number of ranks."""


class Settings(Section, frozen=True, kw_only=True):
    """The whole configuration."""

    name: str = "sedd"
    """Name of the training, and of its folder."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What rank 0 logs on standard error."""
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
    parallel: Ranks = Ranks()
    logging: core.Logging = core.Logging()
    profile: core.Profile | None = None
    """Record some steps with torch.profiler, to find out why training is slow; left out: none."""
    member: core.Member | None = None
    """Which training of a sweep this is. castoff writes it."""


def read(
    fields: Any,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    choose: Choose = by_array,
    *,
    origin: str = "config",
) -> Settings:
    """Read settings from plain data. `flags`, by the fields' paths, override it, and `overrides` override
    both.

    `choose` selects one of the trainings that a sweep describes: the one of this process's array index.

    A learning rate that an override sets is not scaled.

    Raises:
        ConfigError: lists every problem of the settings.
    """
    problems: list[Problem] = []
    document = one_training(fields, flags or {}, overrides, choose, RATE, origin, problems)
    read = convert(document, Settings, problems, hint=_hint(document))
    if read is not None and not problems:
        problems += [document.problem(*wrong) for wrong in _together(read)]
    if problems or read is None:
        raise ConfigError(problems)
    return read


RATE = Rate(("optim", "lr"), ("scaling", "learning_rate"))


def _hint(document: Document) -> Hint:
    """What to say about an unknown field: its name in this YAML, if it is the core's or another trainer's."""
    others = hint_from(document, Settings, in_own_words)

    def hint(kind: str, path: FieldPath, known: list[str]) -> str:
        name = IN_OWN_WORDS.get(dotted(path))
        return f"; here: {name}" if name else others(kind, path, known)

    return hint


def _together(given: Settings) -> list[tuple[FieldPath, str]]:
    """What is wrong with combinations of fields, each of which is valid by itself."""
    training, length, longest = given.training, given.model.length, given.data.max_length
    problems: list[tuple[FieldPath, str]] = []
    if training.n_iters is not None and training.epochs is not None:
        both = f"is {training.n_iters}, and training.epochs is {training.epochs}"
        message = f"{both}; only one of them can end the training, so drop the other"
        problems.append((("training", "n_iters"), message))
    if length is not None and longest not in (length, settings.Data().max_length):
        both = f"is {length}, and data.max_length is {longest}"
        message = f"{both}; both set the length of the longest protein, so drop one"
        problems.append((("model", "length"), message))
    if given.ddp.static_graph and training.accum > 1:
        message = (
            "is true, but torch cannot accumulate gradients then, and training.accum is "
            f"{training.accum}; drop one of the two"
        )
        problems.append((("ddp", "static_graph"), message))
    return [*problems, *_of_strategy(given)]


def _of_strategy(given: Settings) -> list[tuple[FieldPath, str]]:
    """Fields that the strategy does not have, by their paths in this YAML."""
    parallel = {**msgspec.structs.asdict(given.parallel), **msgspec.structs.asdict(given.ddp)}
    wrong = of_strategy(parallel, {"precision": given.memory.mixed_precision})
    return [(tuple(in_own_words(dotted(path)).split(".")), message) for path, message in wrong]
