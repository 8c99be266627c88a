"""Resuming after any end, at any world size: as if nothing had been, bit for bit."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.task import Loss
from tests import patience
from tests.cases import others_long
from tests.trainers.toys import Outcome, Ranks, Sensitive, die_at_effect, run, same, train, with_checkpoints

pytestmark = pytest.mark.usefixtures("for_real")


class Kill(NamedTuple):
    """When an attempt is killed: at a rank's n-th loss, or right before rank 0's n-th effect on the disk."""

    rank: int
    where: str
    number: int


def train_and_die(task: Sensitive, fields: dict[str, Any], kill: Kill) -> Outcome:
    if int(os.environ["RANK"]) == kill.rank:
        if kill.where == "disk":
            die_at_effect(kill.number)
        else:
            _die_at_loss(task, kill.number)
    return train(task, fields)


def _die_at_loss(task: Sensitive, number: int) -> None:
    whole = task.loss
    losses = 0

    def counted(model: nn.Module, batch: Any) -> Loss:
        nonlocal losses
        losses += 1
        if losses == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(model, batch)

    vars(task)["loss"] = counted


class Case(NamedTuple):
    """Ranks, and what is passed to them."""

    world_size: int
    training: Mapping[str, Any]
    parallel: Mapping[str, Any] = {}

    def task(self) -> Sensitive:
        return Sensitive(partly="find_unused_parameters" in self.parallel)

    def fields(self, path: Path, **more: Any) -> dict[str, Any]:
        return {**with_checkpoints(path, **{**self.training, **more}), "parallel": self.parallel}


WORKERS, CLIPPED, AVERAGED = {"num_workers": 2}, {"clip_grad_norm": 1.0}, {"ema_decay": 0.9}
MICROS, BF16, FP16 = {"gradient_accumulation_steps": 2}, {"precision": "bf16"}, {"precision": "fp16"}
HOOK, UNUSED = {"communication_hook": "fp16"}, {"find_unused_parameters": True}
AGAIN, SHARDED = {"activation_checkpointing": ["*"]}, {"strategy": "fsdp"}

CASES = [
    Case(1, {**WORKERS, **MICROS}),
    Case(2, {**MICROS, **CLIPPED, **BF16}, UNUSED),
    Case(3, {**WORKERS, **MICROS, **AVERAGED, **CLIPPED, **BF16}, HOOK),
    Case(4, {**AVERAGED, **CLIPPED}, {**HOOK, **UNUSED}),
    Case(2, {**FP16}, HOOK),
    Case(3, {**WORKERS, **MICROS, **AVERAGED, **CLIPPED, **FP16}, UNUSED),
    Case(2, {**WORKERS, **AVERAGED, **BF16}, UNUSED),
    Case(3, {**MICROS, **AVERAGED, **CLIPPED, **AGAIN}, SHARDED),
    Case(2, {**BF16}, {**SHARDED, "fsdp": {"modules": ["0", "Linear"]}}),
]
"""For each two options there is one with both, one with either, and one with none of them."""

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.world_size))


def kills(case: Case, number: int) -> list[Kill]:
    chosen = random.Random(CASES.index(case))
    found = []
    for turn in range(number):
        if turn % 2:
            found.append(Kill(chosen.randrange(case.world_size), "loss", chosen.randint(2, 12)))
        else:
            found.append(Kill(0, "disk", chosen.randint(5, 40)))
    return found


def killed_and_gone_on(case: Case, number: int, folder: Path, **training: Any) -> None:
    world_size, task = case.world_size, case.task()
    uninterrupted = Ranks(folder / "one", world_size)  # meanwhile
    uninterrupted.start(train, task, case.fields(folder / "whole", **training))
    fields = case.fields(folder / "killed", **training)
    died = 0
    for turn, kill in enumerate(kills(case, number)):
        ranks = Ranks(folder / f"attempt{turn}", world_size)
        ranks.start(train_and_die, task, fields, kill)
        died += ranks.processes[kill.rank].wait(patience.SECONDS) == -signal.SIGKILL
        ranks.kill()
    assert died > number / 2
    answers = run(train, task, fields, folder=folder / "last", world_size=world_size)
    whole: Outcome = uninterrupted.answers()[0]
    same(answers[0], whole)
    assert {answer.judged for answer in answers} == {whole.judged}


@pytest.mark.parametrize(
    "case", others_long(CASES, [*CASES[2:4], CASES[-2]]), ids=lambda case: str(case.world_size)
)
def test_killed_at_any_moment(case: Case, tmp_path: Path) -> None:
    """SIGKILL of any rank at any step, and of rank 0 at any effect on the disk."""
    killed_and_gone_on(case, 3, tmp_path, num_epochs=2)


@pytest.mark.long
@pytest.mark.apart
@each_case
def test_killed_fifty_times(case: Case, tmp_path: Path) -> None:
    killed_and_gone_on(case, 50, tmp_path, num_epochs=20)


@pytest.mark.long
@pytest.mark.apart
@each_case
def test_killed_when_compiled(case: Case, tmp_path: Path) -> None:
    killed_and_gone_on(case, 3, tmp_path, compile=True)


@pytest.mark.parametrize("world_size", [3, 4])
def test_stopped_at_the_first_step(world_size: int, tmp_path: Path) -> None:
    """Where a DDP that orders its buckets late would round the next step otherwise."""
    options = {"gradient_accumulation_steps": world_size - 2, "num_epochs": 1}
    uninterrupted = Ranks(tmp_path / "one", world_size)  # meanwhile
    uninterrupted.start(train, Sensitive(counted=False), with_checkpoints(tmp_path / "whole", **options))
    fields = with_checkpoints(tmp_path / "stopped", **options)
    stop, outcome = tmp_path / "stop", tmp_path / "outcome"
    stop.touch()
    environ = {"CASTOFF_STOP_FILE": str(stop), "CASTOFF_OUTCOME_FILE": str(outcome)}
    ranks = Ranks(tmp_path / "two", world_size, environ)
    ranks.start(train, Sensitive(counted=False), fields)
    assert ranks.end() == [0] * world_size, ranks.log(0)
    assert outcome.read_text() == "resume\n"
    newest = Checkpoints(tmp_path / "stopped" / "toy" / "checkpoints").newest()
    assert newest is not None
    assert load_part(newest, "training")["state"]["step"] < 4
    answers = run(train, Sensitive(counted=False), fields, folder=tmp_path / "three", world_size=world_size)
    same(answers[0], uninterrupted.answers()[0])
