"""Fields of castoff's trainer that some systems' configurations name differently."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from typing import Annotated, Literal

import msgspec

from castoff.trainers.configuration.section import NotNegative, Positive, Seconds, Section, Seed


class Fsdp(Section, frozen=True, kw_only=True):
    """How weights, gradients and the optimizer's state are sharded over the ranks."""

    modules: list[str] | None = None
    """Modules that are sharded on their own, and whole only while they compute: names, in which `*` is one
    part (`encoder.layers.*`), or classes (`Block`). Left out: the items of lists and sequences of modules
    that have the class of another item. Empty: none, so that each step gathers the whole model."""
    within: Literal["all", "node"] = "all"
    """`node`: shard over the ranks of a node, and keep a copy in every node. Takes more memory, and less
    communication between nodes."""
    reshard_after_forward: bool = True
    """Drop a module's whole parameters after its forward pass, and gather them again for the backward pass.
    False takes more memory, and less communication."""


class Ranks(Section, frozen=True, kw_only=True):
    """How ranks connect and communicate."""

    world_size: Positive | None = None
    """The required number of ranks; another number is an error. Optional."""
    master_addr: str = "localhost"
    """The host through which ranks connect (rank 0's), if the launcher sets none."""
    master_port: str | int = "12355"
    """The port on that host, if the launcher sets none."""
    backend: str | None = None
    """`nccl`, `gloo` or `xccl` (also written `ccl` or `xpu`); left out, or `auto`: torch's for the device."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """`ddp`: each rank has the whole model. `fsdp`: each rank has a part of the weights, gradients and
    optimizer's state, for models that take too much memory."""
    fsdp: Fsdp | None = None
    """How the model is sharded, with `strategy: fsdp`."""
    bucket_cap_mb: Positive | None = None
    """MiB of a bucket of gradients; left out: torch's default."""
    communication_hook: Literal["fp16", "bf16"] | None = None
    """The type in which gradients are sent: half the traffic, but rounded. torch supports bf16 with NCCL and
    XCCL only."""
    start_timeout: Seconds = 1800.0
    """Seconds that ranks wait for each other until the first step of this start is done."""
    timeout: Seconds = 600.0
    """Seconds that they wait from then on. Must exceed any step, and any batch of a validation."""


class Loop(Section, frozen=True, kw_only=True):
    """A training's folder, and how its loop runs."""

    run: str | None = None
    """Name of the run's own folder; left out: made of the configuration's name and, in a castoff run, the
    run's id."""
    fresh: bool = False
    """Start over: what is in the run's folder is moved to NAME.1, NAME.2 and so on. `castoff train --fresh`
    sets it."""
    resume_checkpoint: str | None = None
    """A checkpoint of another run, or that run's folder, for its newest. This run resumes from it as long as
    its own folder has no checkpoint; the other folder stays as it is."""
    seed: Seed = 0
    """Everything random derives from it."""
    device: Literal["auto", "cpu", "cuda", "xpu", "mps"] = "auto"
    """`auto`: the accelerator that torch finds, else the CPU."""
    compile: bool = False
    """Apply torch.compile to the model, before it is wrapped in DistributedDataParallel; with
    `parallel.strategy: fsdp` to each module that is sharded on its own."""
    activation_checkpointing: list[str] = []  # noqa: RUF012  # msgspec copies it
    """Modules that do not keep their intermediate results for the backward pass, but compute them again: less
    memory, more time, the same numbers. Names and classes as in `parallel.fsdp.modules`."""
    num_workers: NotNegative = 0
    """Processes per rank that load samples; 0: the rank loads them itself."""
    pin_memory: bool = False
    """Load batches into pinned memory, if there is an accelerator."""
    drop_last: bool = False
    """Drop a last step that has less than a whole global batch."""
    prefetch_factor: Positive | None = None
    """Batches that each worker loads ahead; left out: torch's default. No effect without workers."""
    persistent_workers: bool = False
    """Keep the workers between epochs, except those of an iterable set. No effect without workers."""
    multiprocessing_context: Literal["fork", "spawn", "forkserver"] | None = None
    """How workers are started, also for validation and test; left out: as the program has set with
    `multiprocessing.set_start_method`, else `fork` on Linux, also under Python 3.14. A forked worker that
    Python leaves asleep (before 3.10.15 and 3.11.10, CPython issue 112275) is forked again."""
    shuffle: bool = True
    """A new order in each epoch, the same on all ranks, with samples of similar lengths together if the set
    has `lengths`; false: the set's own order. No effect on an iterable set."""
    non_finite: Literal["stop", "skip"] = "stop"
    """What happens at a step whose gradient is NaN or infinite: the training ends, or the step leaves the
    weights unchanged."""
    keep_checkpoints: Annotated[int, msgspec.Meta(ge=2)] = 2
    """How many of the newest checkpoints are kept, in addition to the best."""
    collect_garbage_every: Positive | None = 1000
    """Optimizer steps between two collections of Python's garbage. All ranks collect in the same step, so
    that none waits for another. Null: whenever Python does."""
