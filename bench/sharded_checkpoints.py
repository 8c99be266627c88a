"""How long training halts for a checkpoint of sharded states, and how long until it is on the disk.

`python -m bench.sharded_checkpoints [ROUNDS [MB]]`: castoff's, DCP's `async_save` on a thread, and DCP's
`save` take turns on two ranks, with the same tensors. What counts is the slower rank.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from bench.training import tenths
from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints
from castoff.trainers.ddp import cleanup_ddp, initialize_ddp
from tests import patience
from tests.trainers.toys import run

RANKS, ROUNDS, MEGABYTES = 2, 7, 200
COLUMNS = 1024
TENSORS = 24
"""Of weights; AdamW's two moments are as many again each."""

Taken = dict[str, list[tuple[float, float]]]
"""Seconds that each save halted the training, and until it was durable, by what saved."""


def measure(folder: Path, rounds: int, megabytes: int) -> Taken:
    """On each rank: the slowest rank's times."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    state = _state(megabytes)
    group = dist.new_group(backend="gloo")
    savers: dict[str, Callable[[Path], Callable[[], object]]] = {
        "castoff": Castoff(folder / "castoff", state),
        "DCP async_save": lambda path: _wait(async_save(state, checkpoint_id=path, process_group=group)),
        "DCP save": lambda path: _done(save(state, checkpoint_id=path)),
    }
    taken: Taken = {name: [] for name in savers}
    for number in range(rounds + 1):
        for name, begin in savers.items():
            dist.barrier()
            began = perf_counter()
            wait = begin(folder / f"{name}-{number}")
            halt = perf_counter() - began
            wait()
            both = torch.tensor([halt, perf_counter() - began], dtype=torch.float64)
            dist.all_reduce(both, dist.ReduceOp.MAX)
            if number:  # the first makes buffers
                taken[name].append((float(both[0]), float(both[1])))
            if me.rank == 0:
                shutil.rmtree(folder / f"{name}-{number}", ignore_errors=True)
    cleanup_ddp()
    return taken


def _state(megabytes: int) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (RANKS,))
    rows = megabytes * 10**6 // (4 * COLUMNS * TENSORS * 3 * RANKS)

    def some() -> DTensor:
        return DTensor.from_local(torch.randn(rows, COLUMNS), mesh, [Shard(0)])

    moments = {number: {"exp_avg": some(), "exp_avg_sq": some()} for number in range(TENSORS)}
    weights = {f"{number}.weight": some() for number in range(TENSORS)}
    return {"model": weights, "training": {"engine": {"optimizer": {"state": moments}}}}


class Castoff:
    """castoff's own."""

    def __init__(self, folder: Path, state: dict[str, Any]):
        self._kept = Checkpoints(folder)
        self._state = state
        self._step = 0

    def __call__(self, path: Path) -> Callable[[], object]:
        """Save; returns what waits for it."""
        self._step += 1
        self._kept.save(self._step, self._state)
        return self._kept.wait


def _wait(written: Any) -> Callable[[], object]:
    assert isinstance(written, Future)
    return lambda: written.result(patience.SECONDS)


def _done(written: object) -> Callable[[], object]:
    return lambda: written


def table(taken: Taken, megabytes: int) -> list[str]:
    """The lines that tell what came out."""
    lines = [f"\nA checkpoint of {megabytes} MB, sharded over {RANKS} ranks: halts, and until it is durable"]
    for name, both in taken.items():
        shown = []
        for times in zip(*both, strict=True):
            low, high = tenths(list(times))
            shown.append(f"{statistics.median(times) * 1e3:6.0f} ms ({low * 1e3:.0f} to {high * 1e3:.0f})")
        lines.append(f"{name:14} {'  '.join(shown)}")
    return lines


if __name__ == "__main__":
    from bench.sharded_checkpoints import measure as measured  # the ranks know it by this module's name

    given = [int(word) for word in sys.argv[1:]]
    rounds, megabytes = [*given, *(ROUNDS, MEGABYTES)[len(given) :]]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        found = run(measured, place / "out", rounds, megabytes, folder=place / "ranks", world_size=RANKS)[0]
    print("\n".join(table(found, megabytes)))
