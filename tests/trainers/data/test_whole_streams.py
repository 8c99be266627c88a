"""Validation and test sets that can only be iterated are judged as those with a length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Splits
from tests.trainers.toys import Toy, config, run


class Streamed(IterableDataset[Any]):
    """The samples of a set with a length, with a little noise; `own`: only those of this rank."""

    def __init__(self, given: Any, noise: float = 0.0, own: bool = False):
        self.given, self.noise, self.own = given, noise, own

    def __iter__(self) -> Iterator[Any]:
        first, step = (RankEnv.detect().rank, RankEnv.detect().world_size) if self.own else (0, 1)
        for index in range(first, len(self.given), step):
            numbers, wanted = self.given[index]
            yield numbers + self.noise * torch.rand(8), wanted


class Streams(Toy):
    def __init__(self, kind: str):
        super().__init__(samples=130)
        self.kind = kind

    def build_data(self) -> Splits:
        train, validation, test = super().build_data()
        if self.kind == "length":
            return Splits(train, validation, test)
        noise = 0.1 if self.kind == "noise" else 0.0
        return Splits(train, *(Streamed(each, noise, self.kind == "own") for each in (validation, test)))


def judged(folder: Path, kind: str) -> Any:
    """All validations and the test on this rank; or what is wrong."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, config(folder / kind, num_epochs=2), Streams(kind))
    try:
        train, validation, test = trainer.prepare_dataloaders()
    except ConfigError as error:
        return str(error)
    finally:
        if kind == "own":
            cleanup_ddp()
    _, metrics = trainer.run_training(train, validation)
    tested = trainer.run_test(test)
    cleanup_ddp()
    return metrics, dict(tested)


def test_a_stream_is_judged_as_a_set_with_a_length(tmp_path: Path) -> None:
    by_length, by_stream, noisy = (judged(tmp_path, kind) for kind in ("length", "stream", "noise"))
    assert by_stream == by_length != noisy
    assert judged(tmp_path / "again", "noise") == noisy


@pytest.mark.usefixtures("for_real")
def test_on_several_ranks(tmp_path: Path) -> None:
    answers = run(judged, tmp_path, "stream", folder=tmp_path / "ranks", world_size=2)
    assert answers[0] == answers[1] and len(answers[0][0]) == 2
    for said in run(judged, tmp_path, "own", folder=tmp_path / "own", world_size=2):
        assert "samples of build_data's validation: is 6 on rank 1, but 7 on rank 0" in said
