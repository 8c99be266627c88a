"""A model as others read it: written after each validation, whatever ends come in between."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed import failures
from castoff.trainers.distributed.failures import end
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Splits
from tests import patience
from tests.trainers.toys import Ranks, Toy, config, digest, run

LOSSES = (3.0, 2.0, 5.0)
"""Of the validations after the first epoch, the second, and the third."""


class Exports(Toy):
    """Writes a file for each epoch that was validated, and may be killed before or afterwards."""

    def __init__(self, dies: str = "", validated: bool = True) -> None:
        super().__init__(40)
        self.dies = dies
        self.validated = validated
        self.folder: Path | None = None
        self.exported = 0

    def build_data(self) -> Splits:
        splits = super().build_data()
        return splits if self.validated else Splits(splits.train)

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Any]:
        return {"loss": (LOSSES[self.state.epoch - 1], 1)}

    def loss(self, model: nn.Module, batch: Any) -> Any:
        if self.dies == "when recorded" and self.exported:
            assert self.folder is not None
            record = self.folder / "checkpoints" / f"step-{self.state.step:010d}" / "record.json"
            patience.until(record.exists)
            _die()
        return super().loss(model, batch)

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        assert not model.training
        assert not torch.is_grad_enabled()
        self.exported += 1
        if self.dies == "before":
            _die()
        self.folder = folder
        said = {"better": better, "rank": self.state.rank, "weights": digest(model)}
        said |= {"validations": len(self.state.val_data), "epochs": len(self.state.train_data)}
        (folder / f"epoch-{self.state.epoch}.json").write_text(json.dumps(said))
        if self.dies == "after":
            _die()


class EachEpoch(Exports):
    """Notes for which epochs and steps of the next one it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, int]] = []

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Any]:
        return {"loss": (1.0, 1)}

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        self.written.append((self.state.epoch, self.state.consumed))


class Refused(Exports):
    """Its disk takes nothing more."""

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "best_model.pt"))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(task: Exports, fields: dict[str, Any]) -> str:
    """To its end on this rank: the last weights that were judged."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, fields, task)
    try:
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    except OSError as error:
        vars(failures)["_MOMENT"] = 0.0  # until the process ends: nobody ends the others here
        end(error, me, fields["training"]["path"])
    judged = digest(trainer.engine.judged)
    cleanup_ddp()
    return judged


def exported(path: Path) -> list[dict[str, Any]]:
    return [json.loads(each.read_text()) for each in sorted((path / "toy").glob("epoch-*.json"))]


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world_size", [1, 2])
def test_it_is_written_also_where_a_kill_comes_between(world_size: int, tmp_path: Path) -> None:
    """The averaged weights, once for each validation and by rank 0, and again if a run resumes from there."""
    options = {"ema_decay": 0.9, "num_epochs": 3}
    uninterrupted = Ranks(tmp_path / "one", world_size)  # meanwhile
    uninterrupted.start(train, Exports(), config(tmp_path / "whole", **options))
    fields = config(tmp_path / "killed", **options)
    written = []
    for turn, dies in enumerate(("before", "after", "when recorded", "when recorded")):
        ranks = Ranks(tmp_path / f"attempt{turn}", world_size)
        ranks.start(train, Exports(dies), fields)
        assert ranks.processes[0].wait(patience.SECONDS) == -signal.SIGKILL, ranks.log(0)
        ranks.kill()
        written.append(len(exported(tmp_path / "killed")))
        for each in (tmp_path / "killed" / "toy").glob("epoch-*.json"):
            each.unlink()
    assert written == [0, 1, 1, 1]
    answers = run(train, Exports(), fields, folder=tmp_path / "last", world_size=world_size)
    whole = exported(tmp_path / "whole")
    assert exported(tmp_path / "killed") == whole
    assert [each["better"] for each in whole] == [True, True, False]
    assert [(each["validations"], each["epochs"], each["rank"]) for each in whole] == [
        (number, number, 0) for number in (1, 2, 3)
    ]
    assert {*answers, *uninterrupted.answers()} == {whole[-1]["weights"]}


def test_also_without_a_validation_set(tmp_path: Path) -> None:
    """Where an epoch's training is what judges."""
    task = Exports(validated=False)
    train(task, {**config(tmp_path, num_epochs=2), "validation": {"every_steps": 3}})
    assert task.exported == 2
    found = exported(tmp_path)
    assert [each["epochs"] for each in found] == [1, 2]
    assert {each["validations"] for each in found} == {0}


@pytest.mark.parametrize(("num_steps", "better"), [(2, True), (6, False)])
def test_also_in_the_middle_of_an_epoch_without_one(num_steps: int, better: bool, tmp_path: Path) -> None:
    """There is nothing to judge by, but the training is over; the only model is the best one."""
    task = Exports(validated=False)
    judged = train(task, config(tmp_path, num_epochs=None, num_steps=num_steps))  # 4 are an epoch
    last = exported(tmp_path)[-1]
    assert (last["better"], last["weights"]) == (better, judged)


@pytest.mark.parametrize("every_steps", [3, 4])
def test_each_epoch_whenever_it_is_validated(every_steps: int, tmp_path: Path) -> None:
    """Also where a validation comes with an epoch's last step, when the epoch is not yet done."""
    task = EachEpoch()
    train(task, {**config(tmp_path, num_epochs=3), "validation": {"every_steps": every_steps}})
    assert [epoch for epoch, consumed in task.written if not consumed] == [1, 2, 3]


@pytest.mark.usefixtures("for_real")
def test_a_disk_that_takes_nothing_ends_all_ranks(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", 2)
    ranks.start(train, Refused(), config(tmp_path / "run"))
    assert ranks.end() == [1, 1]
    words = f"castoff train: training.path: {tmp_path}/run/toy/best_model.pt: No space left on device"
    assert all(words in ranks.log(rank) for rank in (0, 1)), ranks.log(1)
