"""Sharding over the ranks: the same numbers as with whole models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from castoff.trainers.configuration.config import Config
from castoff.trainers.distributed.process_group import cleanup_ddp
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.local import local
from tests.trainers.optimization.test_engine import (
    SGD,
    engine_of,
    expected,
    joined,
    layers,
    same,
    trained,
)
from tests.trainers.toys import config, run

FSDP: dict[str, Any] = {"strategy": "fsdp"}
PLAIN: list[tuple[int, str, dict[str, Any]]] = [
    (1, "samples", {}),
    (3, "a number", {}),
    (1, "a tensor", {"modules": []}),
    (3, "samples", {"modules": ["2"], "reshard_after_forward": False}),
    (2, "a tensor", {}),
]
"""Micro-batches, what is counted, and `parallel.fsdp`."""


def made(place: Any, fsdp: Mapping[str, Any] = {}, **training: Any) -> Engine:
    parallel = {**FSDP, "fsdp": dict(fsdp)} if training.pop("sharded", True) else {}
    fields = Config.of({**config("out", **SGD, **training), "parallel": parallel})
    return engine_of(layers(), fields, place)


def train_plainly(numbers: list[int]) -> list[list[Tensor]]:
    place = joined()
    found = []
    for micros, counted, fsdp in (PLAIN[number] for number in numbers):
        engine = made(place, fsdp)
        parts = {name: local(each).numel() for name, each in engine.bare.named_parameters()}
        assert sum(parts.values()) < 900 / place.world_size + 40, "each rank has only its part"
        found.append(trained(engine, place, micros, counted))
        assert not engine.strategy.sharded
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(("world_size", "cases"), [(2, [0, 1, 2, 3]), (3, [0, 4]), (4, [1])])
def test_ranks_are_one_process(world_size: int, cases: list[int], tmp_path: Path) -> None:
    answers = run(train_plainly, cases, folder=tmp_path, world_size=world_size)
    for answer in answers:
        for mine, first, case in zip(answer, answers[0], cases, strict=True):
            same(mine, expected(PLAIN[case][1]))
            assert all(torch.equal(one, other) for one, other in zip(mine, first, strict=True))
