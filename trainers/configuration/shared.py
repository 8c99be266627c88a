"""Fields that castoff's trainer has, and systems whose configurations call others by names of their own."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Literal

import msgspec

from trainers.configuration.section import NotNegative, Positive, Seconds, Section, Seed


class Ranks(Section, frozen=True, kw_only=True):
    """How ranks meet, and what they send."""

    world_size: Positive | None = None
    """How many ranks there must be; another number is an error. May be left out."""
    master_addr: str = "localhost"
    """The host where ranks meet, if nothing else says it."""
    master_port: str | int = "12355"
    """The port there, if nothing else says it."""
    backend: str | None = None
    """`nccl`, `gloo` or `xccl`, also as `ccl` or `xpu`; left out, or `auto`: what torch has for the
    device."""
    bucket_cap_mb: Positive | None = None
    """MiB of a bucket of gradients; left out: torch's choice."""
    communication_hook: Literal["fp16", "bf16"] | None = None
    """The type in which gradients are sent: half as much traffic, and rounded. torch supports bf16 with
    NCCL and XCCL only."""
    start_timeout: Seconds = 1800.0
    """Seconds that ranks wait for each other until the first step of this start is done."""
    timeout: Seconds = 600.0
    """Seconds that they wait from then on; longer than any step, and any batch of a validation."""


class Loop(Section, frozen=True, kw_only=True):
    """A training's folder, and how it runs."""

    run: str | None = None
    """Name of the run's own folder; left out: from the configuration's name and, in a castoff run, that
    run's."""
    fresh: bool = False
    """Begin anew: what is in the run's folder is set aside, as NAME.1, NAME.2 and so on. `--fresh` of
    `castoff train` sets it."""
    resume_checkpoint: str | None = None
    """A checkpoint of another run, or that run's folder, whose newest is meant. This run resumes from it
    as long as its own folder has none; the other folder stays as it is."""
    seed: Seed = 0
    """Everything random follows from it."""
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    """`auto`: the accelerator that torch has, else the CPU."""
    compile: bool = False
    """torch.compile on the model, before it is wrapped in DistributedDataParallel."""
    num_workers: NotNegative = 0
    """Processes of each rank that load samples; 0: the rank loads them itself."""
    pin_memory: bool = False
    """Batches in pinned memory, where there is an accelerator."""
    drop_last: bool = False
    """Leave out a last step that has less than a whole global batch."""
    prefetch_factor: Positive | None = None
    """Batches that each worker loads ahead; left out: torch's choice. No effect without workers."""
    persistent_workers: bool = False
    """Keep the workers over epochs; those of an iterable set never are. No effect without workers."""
    multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = None
    """How workers are started, those of validation and test, too; left out: Python's choice. A forked one
    that Python leaves asleep (before 3.10.15 and 3.11.10, CPython issue 112275) is forked anew."""
    shuffle: bool = True
    """Another order in each epoch, the same on all ranks, with samples of similar lengths together where
    the set says how long they are; false: the set's own order. No effect on an iterable set."""
    non_finite: Literal["stop", "skip"] = "stop"
    """What happens at a step whose gradient is NaN or infinite: the training ends, or the step leaves the
    weights alone."""
    keep_checkpoints: Annotated[int, msgspec.Meta(ge=2)] = 2
    """How many of the newest checkpoints are kept; the best is kept, too."""
    collect_garbage_every: Positive | None = 1000
    """Optimizer steps between two collections of Python's garbage, on all ranks in the same step, since
    one that stops for it alone makes all wait. Null: as Python does it."""
