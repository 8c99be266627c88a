"""What training's speed and its hindrances are worked out from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.reporting.running import Running
from castoff.trainers.reporting.throughput import TIMED, Throughput, metrics, report
from tests.trainers.toys import run

ALONE = RankContext(0, 1, torch.device("cpu"))


class Clock:
    """Moves when the test moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_rank() -> None:
    clock = Clock()
    throughput = Throughput(ALONE, 10, clock)

    def batches() -> Iterator[int]:
        for number in range(4):
            clock.now += 1.0  # each is waited for
            yield number

    for _ in throughput.waits(batches()):
        clock.now += 3.0
        throughput.step(8)
        with throughput.paused():
            clock.now += 100.0
    summed, computing = throughput.interval()
    given = metrics([64.0, *summed], [computing])
    assert given == {"samples_per_second": 2.0, "tokens_per_second": 4.0, "step_time": 4.0, "data_wait": 0.25}
    clock.now += 2.0
    throughput.step(8)
    summed, computing = throughput.interval()
    assert metrics([8.0, *summed], [computing])["step_time"] == 2.0, "a new interval has begun"


def test_samples_are_not_reported_as_tokens() -> None:
    assert "tokens_per_second" not in metrics([8.0, 1.0, 8.0, 2.0, 0.0, 0.0], [2.0])


def test_no_steps_have_no_speed() -> None:
    summed, computing = Throughput(ALONE, 10).interval()
    assert metrics([0.0, *summed], [computing]) == {}


def test_the_slowest_rank_is_the_one_that_waits_least() -> None:
    # two steps of 2 s each on four ranks; all but rank 2 wait for it for half of the time
    own = [2.0, 2.0, 3.9, 2.0]
    given = metrics([80.0, 8.0, 80.0, 16.0, 1.6, 6.1], own)
    assert given == {
        "samples_per_second": 20.0,
        "step_time": 2.0,
        "data_wait": pytest.approx(0.1),
        "communication": pytest.approx(6.1 / 16),
        "slowest_rank": 2,
        "slowest_rank_lag": pytest.approx(1.9 / 4),
    }
    assert set(given) < set(TIMED)


def test_waiting_for_others_is_not_known_of_a_sharded_model() -> None:
    given = metrics([80.0, 8.0, 80.0, 16.0, 1.6, 6.1], [2.0, 2.0, 3.9, 2.0], sharded=True)
    assert set(given) == {"samples_per_second", "step_time", "data_wait"}


class Heard(Clock):
    """Tells the other ranks when it is read in the backward of a step."""

    step: int | None = None

    def __init__(self) -> None:
        self.store: Any = torch.distributed.distributed_c10d._get_default_store()

    def __call__(self) -> float:
        if self.step is not None:
            self.store.set(f"read in step {self.step}", "")
        return self.now


def slow_rank(slow: int) -> dict[str, float]:
    """What is reported of training in which one rank computes for 3 s longer in each step."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        return four_steps(place, slow)
    finally:
        cleanup_ddp()


def four_steps(context: RankContext, slow: int) -> dict[str, float]:
    model = DistributedDataParallel(nn.Linear(8, 8))  # gone before the group is
    clock = Heard()
    running, throughput = Running(), Throughput(context, 8, clock)
    for step in throughput.waits(range(4)):
        total = model(torch.ones(4, 8)).sum()
        if context.rank == slow:
            clock.store.wait([f"read in step {step}"])  # the other's own backward is done by then
            clock.now += 3.0
        with throughput.reduction(total):
            clock.step = step
            total.backward()
            clock.step = None
            clock.now += 3.0 if context.rank != slow else 0.0  # which it has waited for the slow one
        running.add(total, 4)
        throughput.step(4)
    return report(running, throughput, context)


@pytest.mark.usefixtures("for_real")
def test_ranks_wait_for_the_slowest(tmp_path: Path) -> None:
    given = run(slow_rank, 1, folder=tmp_path, world_size=2)
    assert given[0] == given[1]
    assert given[0]["train/slowest_rank"] == 1
    assert given[0]["train/step_time"] == 3.0 and given[0]["train/communication"] == 0.5
    assert "train/tokens_per_second" not in given[0]
    assert given[0]["train/memory_gb"] > 0.01
    assert 0 < given[0]["train/memory_balance"] <= 1
