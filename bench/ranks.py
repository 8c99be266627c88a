"""What every rank of a measurement does: `python -m bench.ranks FOLDER ROUNDS`."""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from bench.loops import LOOPS, Layers, Work, train_with_castoff
from bench.relay import Runner
from bench.training import ACCUMULATING, ANSWER, Case, Lap, cases_of
from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.wrapping import distributed


def take_turns(case: Case, rounds: int, folder: Path) -> dict[str, list[Lap]]:
    """Let the loops of a case run laps in turn; the laps of each, by its name.

    Nobody knows which loop it is that keeps Python's collector busy with the objects of all, so those
    that are there before the first lap are left to nobody.
    """
    steps = (rounds + 1) * case.steps + 1
    work = Work(case.width, steps, accumulation=case.accumulation, ranks=case.ranks)
    runners = {
        name: Runner(partial(LOOPS[name], work, folder / f"{case.width}-{case.accumulation}-{name}"))
        for name in case.loops
    }
    for runner in runners.values():
        runner.prepare()
    gc.collect()
    gc.freeze()
    laps: dict[str, list[Lap]] = {name: [] for name in runners}
    passes = case.steps * case.accumulation
    shuffled = random.Random(0)  # the same on all ranks
    for number in range(rounds + 1):
        # Not in turn: a loop that always follows the same other one finds its caches as that left them.
        for name in shuffled.sample(case.loops, len(case.loops)):
            lap = _lap(runners[name], passes)
            if number:  # the first round fills caches
                laps[name].append(lap)
    gc.unfreeze()
    for runner in runners.values():
        runner.finish()
    return {name: _of_all_ranks(own) for name, own in laps.items()}


def _lap(runner: Runner, passes: int) -> Lap:
    _barrier()
    began, busy = time.perf_counter(), time.process_time()
    runner.run(passes)
    _barrier()
    return Lap(time.perf_counter() - began, time.process_time() - busy)


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def _of_all_ranks(laps: list[Lap]) -> list[Lap]:
    """The wall time of this rank, which waits for the others, and the CPU time of all."""
    busy = torch.tensor([lap.cpu for lap in laps], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(busy)
    return [Lap(lap.wall, cpu) for lap, cpu in zip(laps, busy.tolist(), strict=True)]


def reductions(steps: int, folder: Path) -> float:
    """How often castoff reduces the gradients in an optimizer step of several forward passes."""
    counted = 0

    def reduce(bucket: Any) -> torch.futures.Future[torch.Tensor]:
        nonlocal counted
        counted += bucket.is_last()
        return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]

    def hooked(*what: Any) -> DistributedDataParallel:
        made = distributed(*what)
        made.register_comm_hook(None, lambda _, bucket: reduce(bucket))
        return made

    with patch("castoff.trainers.optimization.replicated.distributed", hooked):
        work = Work(8, steps, accumulation=ACCUMULATING.accumulation, ranks=ACCUMULATING.ranks)
        train_with_castoff(Layers(work, lambda: None), folder)
    return counted / steps


def main(folder: Path, rounds: int) -> None:
    """Measure, and leave what came out in the folder."""
    me = RankEnv.detect()
    torch.set_num_threads(1)
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    measured = [take_turns(case, rounds, folder) for case in cases_of(me.world_size)]
    counted = reductions(6, folder / "counted") if me.world_size == ACCUMULATING.ranks else None
    if me.rank == 0:
        (folder / ANSWER).write_text(json.dumps({"laps": measured, "reductions": counted}))
    if dist.is_initialized():
        cleanup_ddp()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
