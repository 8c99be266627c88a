"""What fills the memory of a rank that runs out of it, and what to change.

The run's folder `memory` gets a table for each such rank, rank-N.txt. On accelerators it ends in torch's own
summary, and rank-N.pickle is a snapshot for https://pytorch.org/memory_viz.
"""

from __future__ import annotations

import logging
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.devices import use_of
from castoff.trainers.distributed.private_torch import dump_memory
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.files.durable import replace_file, replacing
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.local import local

logger = logging.getLogger(__name__)

_ROWS = 40
"""The number of parameters in the table."""


class Held(NamedTuple):
    """Bytes of the tensors that a training keeps, by kind; a kind without tensors is missing."""

    kinds: dict[str, int]
    parameters: list[tuple[str, str, int]]
    """Name, shape and type of each parameter, and its bytes with gradient and optimizer state; the largest
    first."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up: an accelerator's, or the host's."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def explain(
    error: BaseException,
    step: int,
    engine: Engine,
    batch: Any,
    config: Config,
    context: RankContext,
    folder: Path,
) -> None:
    """Log what fills this rank's memory and what to change, and write details; other errors are ignored."""
    if not is_out_of_memory(error):
        return
    try:
        held = held_by(engine, batch)
        peak = _peak(context.device)
        where = _written(folder / "memory", held, peak, error, context)
        logger.error(
            "%s%s", in_words(held, peak, step, config, context), f". Details: {where}" if where else ""
        )
    except Exception as failure:  # noqa: BLE001  # memory is short, and `error` is what counts
        logger.error("Out of memory, and what fills it cannot be listed: %s", failure)


def held_by(engine: Engine, batch: Any) -> Held:
    """The sizes of what a training keeps. `batch`: the last batch."""
    optimizer = engine.optimizer
    states = optimizer.state_dict()["state"]
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    state = {parameter: states.get(number, {}) for number, parameter in enumerate(parameters)}
    kinds = dict.fromkeys(("weights", "gradients", "optimizer", "averaged weights", "batch"), 0)
    rows = []
    for name, parameter in engine.bare.named_parameters():
        parts = {
            "weights": _size(parameter),
            "gradients": 0 if parameter.grad is None else _size(parameter.grad),
            "optimizer": sum(map(_size, tensors_in(state.get(parameter, {})))),
        }
        for kind, size in parts.items():
            kinds[kind] += size
        dtype = str(parameter.dtype).removeprefix("torch.")
        rows.append((name, f"{tuple(parameter.shape)} {dtype}", sum(parts.values())))
    kinds["weights"] += sum(map(_size, engine.bare.buffers()))
    if engine.average is not None:
        kinds["averaged weights"] = sum(map(_size, engine.average.module.state_dict().values()))
    kinds["batch"] = sum(map(_size, tensors_in(batch)))
    rows.sort(key=lambda row: row[2], reverse=True)
    return Held({kind: size for kind, size in kinds.items() if size}, rows)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a batch or a state: in containers, and in graphs that can be a dict."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif callable(getattr(value, "to_dict", None)):
        yield from tensors_in(value.to_dict())


def in_words(held: Held, peak: int, step: int, config: Config, context: RankContext) -> str:
    """What fills a rank's memory, and what to change."""
    known = ", ".join(f"{kind} {_words(size)}" for kind, size in held.kinds.items())
    of_cpu = context.device.type == "cpu"
    whose, others = ("the process", "activations and libraries") if of_cpu else ("its tensors", "activations")
    rest = max(peak - sum(held.kinds.values()), 0)
    return (
        f"Out of memory on rank {context.rank}, after step {step}: {known}; at most {whose} had "
        f"{_words(peak)}, of which {_words(rest)} for other things, such as {others}. "
        + advice(held, peak, config, context.world_size)
    )


def advice(held: Held, peak: int, config: Config, world_size: int) -> str:
    """What to change, in a sentence without its full stop."""
    training = config.training
    lasting = sum(size for kind, size in held.kinds.items() if kind != "batch")
    size, micros = training.batch_size, training.gradient_accumulation_steps
    if lasting > peak / 2:
        ways = ["leave out training.ema_decay"] if "averaged weights" in held.kinds else []
        if world_size > 1 and config.parallel.strategy == "ddp":
            ways.append("shard it over the ranks with parallel.strategy: fsdp")
        ways.append("use an optimizer with less state, or a smaller model")
        return f"Most of it does not depend on the batch: {', '.join(ways)}"
    ways = [] if training.activation_checkpointing else ["name modules in training.activation_checkpointing"]
    if size > 1:
        part = next(each for each in range(2, size + 1) if size % each == 0)
        keeping = (
            f"set training.batch_size: {size // part} (now {size}) and training.gradient_accumulation_steps: "
            f"{micros * part} (now {micros}), which keeps the global batch"
        )
        return ", or ".join([f"{keeping[0].upper()}{keeping[1:]}", *ways])
    ways += ["use smaller samples", "a smaller model"]
    return f"training.batch_size is 1 already: {', or '.join(ways)}"


def _written(folder: Path, held: Held, peak: int, error: BaseException, context: RankContext) -> Path | None:
    """Write the table and the snapshot; None if that fails, as on a full disk."""
    path = folder / f"rank-{context.rank}.txt"
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        device = context.device
        lines = [*_table(held, peak, error), "", _summary(device)]
        replace_file(path, "\n".join(lines).encode())
        with suppress(Exception):  # a device without snapshots
            if device.type != "cpu":
                with replacing(path.with_suffix(".pickle")) as draft:
                    dump_memory(torch.get_device_module(device), str(draft))
        return path
    return None


def _table(held: Held, peak: int, error: BaseException) -> Iterable[str]:
    yield f"{type(error).__name__}: {error}"
    yield ""
    for kind, size in [*held.kinds.items(), ("peak", peak)]:
        yield f"{kind:20}{_words(size):>12}"
    yield ""
    yield "The largest parameters, with gradient and optimizer state"
    for name, shape, size in held.parameters[:_ROWS]:
        yield f"{_words(size):>12}  {name}  {shape}"
    if len(held.parameters) > _ROWS:
        yield f"{len(held.parameters) - _ROWS} more are smaller"


def _peak(device: torch.device) -> int:
    """The most bytes so far: of tensors on an accelerator, or of this process on a CPU."""
    if device.type != "cpu":
        return int(use_of(device).memory * 1e9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def _summary(device: torch.device) -> str:
    """torch's table of an accelerator's memory; empty if it has none."""
    ask = None if device.type == "cpu" else getattr(torch.get_device_module(device), "memory_summary", None)
    return "" if ask is None else str(ask(device))


def _size(tensor: Tensor) -> int:
    """Bytes of a tensor on this rank."""
    part = local(tensor)
    return part.numel() * part.element_size()


def _words(size: int) -> str:
    """Bytes in words, in powers of ten as in `train/memory_gb`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"
