"""Sums of the loss: exact, the same after a resume, and read when somebody asks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.reporting import running as running_module
from castoff.trainers.reporting.running import Running
from castoff.trainers.reporting.throughput import Throughput, report
from tests.trainers.synchronisations import counted
from tests.trainers.toys import run

ALONE = RankContext(0, 1, torch.device("cpu"))


def micro_batches(number: int, rank: int = 0) -> list[tuple[torch.Tensor, torch.Tensor, dict[str, Any]]]:
    """Numbers whose sum depends on the order of the additions."""
    drawn = random.Random(rank)
    return [
        (
            torch.tensor(drawn.uniform(-1, 1) * 10 ** drawn.randint(-12, 12)),
            torch.tensor(drawn.randint(1, 9)),
            {"accuracy": torch.tensor(drawn.random())},
        )
        for _ in range(number)
    ]


@pytest.mark.parametrize("saved", range(0, 41, 3))
def test_a_resume_at_any_step_gives_the_same_bits(saved: int) -> None:
    batches = micro_batches(40)

    def train(running: Running, first: int, last: int) -> list[dict[str, float]]:
        given = []
        for number in range(first, last):
            running.add(*batches[number])
            if (number + 1) % 7 == 0:
                given.append(running.report(ALONE)[0])
            if (number + 1) % 20 == 0:
                given.append(running.end_epoch(ALONE))
        return given

    whole = train(Running(), 0, 40)
    before = Running()
    resumed = train(before, 0, saved)
    after = Running()
    after.load_state_dict(before.state_dict())
    resumed += train(after, saved, 40)
    assert resumed == whole


def test_means_are_over_the_items() -> None:
    running = Running()
    running.add(torch.tensor(6.0), 3, {"accuracy": 1.0})
    running.add(torch.tensor(2.0), torch.tensor(1), {"accuracy": torch.tensor(1)})
    running.settle()
    assert running.items == 4
    means, _ = running.report(ALONE)
    assert means == {"loss": 2.0, "accuracy": 0.5}


def test_items_from_a_checkpoint_do_not_count_for_the_pace() -> None:
    before, after = Running(), Running()
    before.add(torch.tensor(6.0), 3)
    after.load_state_dict(before.state_dict())
    after.add(torch.tensor(2.0), 1)
    after.settle()
    assert after.items == 1
    assert after.report(ALONE)[0] == {"loss": 2.0}
    after.add(torch.tensor(2.0), 5)
    after.settle()
    assert after.items == 5


def test_an_interval_across_two_epochs_is_reported_in_either() -> None:
    running = Running()
    running.add(torch.tensor(1.0), 1)
    assert running.end_epoch(ALONE) == {"loss": 1.0}
    running.add(torch.tensor(3.0), 1)
    assert running.report(ALONE)[0] == {"loss": 2.0}
    assert running.end_epoch(ALONE) == {"loss": 3.0}


def test_the_latest_of_what_is_kept_is_reported() -> None:
    running = Running()
    for norm in (3.0, 4.0):
        running.add(torch.tensor(1.0), 1)
        running.keep("train/grad_norm", torch.tensor(norm))
    assert running.report(ALONE)[0] == {"loss": 1.0}
    assert running.kept == {"train/grad_norm": 4.0}


def test_metrics_of_another_name_are_named() -> None:
    running = Running()
    running.add(torch.tensor(1.0), 1, {"accuracy": 1.0})
    with pytest.raises(ConfigError, match=r"\['f1'\], and had \['accuracy'\]"):
        running.add(torch.tensor(1.0), 1, {"f1": 1.0})


def test_nothing_waits_for_the_device_between_reports() -> None:
    running, throughput = Running(), Throughput(ALONE, 50)
    with counted() as seen:
        for step in range(50):
            weight = torch.tensor(float(step), requires_grad=True)
            total = weight * 2
            with throughput.reduction(total):
                total.backward()
            running.add(total, torch.tensor(2), {"accuracy": weight.detach()})
            running.keep("train/grad_norm", torch.tensor(1.0))
            throughput.step(2)
        assert seen.found == []
        report(running, throughput, ALONE)
        assert seen.count == 2, "one for what lay on the device, one for the sums of all ranks"


def test_the_counter_sees_every_way_to_read() -> None:
    number = torch.tensor(1.0)
    reads: list[Callable[[torch.Tensor], object]] = [
        lambda it: it.item(),
        lambda it: it.tolist(),
        lambda it: it.numpy(),
        lambda it: it.cpu(),
        lambda it: it.nonzero(),
        lambda it: it[it > 0],
        lambda it: it.masked_select(it > 0),
        lambda it: torch.equal(it, it),
        float,
        bool,
        int,
        str,
    ]
    for at, read in enumerate(reads):
        with counted() as seen:
            read(number)
        assert seen.count, at


def test_a_long_interval_does_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = micro_batches(25)
    whole, bounded = Running(), Running()
    for each in batches:
        whole.add(*each)
    monkeypatch.setattr(running_module, "_AT_MOST", 4)
    longest = 0
    for each in batches:
        bounded.add(*each)
        longest = max(longest, len(bounded._waiting))
    assert longest < 4
    assert bounded.report(ALONE) == whole.report(ALONE)


def test_a_number_does_not_keep_a_large_tensor_alive() -> None:
    running = Running()
    losses = torch.ones(10_000)
    running.add(losses[0], 1)
    (waiting,) = running._waiting
    assert isinstance(waiting[1], torch.Tensor)
    assert waiting[1].untyped_storage().nbytes() < 1024


def whole_and_resumed() -> tuple[Any, ...]:
    """Ten steps on this rank, and the same with a checkpoint after four: what each reports."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        batches = micro_batches(10, me.rank)
        whole, first, second = Running(), Running(), Running()
        for each in batches:
            whole.add(*each)
        for each in batches[:4]:
            first.add(*each)
        state = first.state_dict()
        second.load_state_dict(state)
        for each in batches[4:]:
            second.add(*each)
        beside = [float(me.rank)]
        return (*(each.report(place, beside) for each in (whole, second, first)), state)
    finally:
        cleanup_ddp()


@pytest.mark.usefixtures("for_real")
def test_ranks_sum_up_and_resume(tmp_path: Path) -> None:
    given = run(whole_and_resumed, folder=tmp_path, world_size=3)
    whole, resumed, half, _ = given[0]
    assert resumed == whole
    assert all(each[:3] == given[0][:3] for each in given)
    assert whole[1] == [0.0 + 1.0 + 2.0]
    alone = Running()  # with another world size, all of it is rank 0's
    alone.load_state_dicts([each[3] for each in given], ALONE)
    assert alone.report(ALONE)[0] == pytest.approx(half[0])


def test_a_rank_that_had_no_items_has_no_loss() -> None:
    """As where each residue of its proteins is unknown."""
    running = Running()
    running.add(torch.tensor(0.0), 0)
    running.settle()
    assert math.isnan(running.loss)
