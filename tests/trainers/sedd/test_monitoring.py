"""The norms of a network's parts, and a limit on memory."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainers.sedd.test_task import task
from trainers.sedd.memory import limit_memory
from trainers.sedd.monitoring import weight_norms


def test_the_norm_of_each_part() -> None:
    first, second = nn.Linear(2, 1), nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[2.0, 3.0]]))
        first.bias.fill_(6.0)
        second.weight.fill_(-4.0)
    model = nn.ModuleDict({"first": first, "second": nn.Sequential(second), "none": nn.ReLU()})
    assert weight_norms(model) == {"first": 7.0, "second": 4.0}


@pytest.mark.parametrize("asked", [True, False])
def test_they_come_with_a_validation_where_they_are_asked_for(asked: bool) -> None:
    which = task(monitoring={"log_weights": asked}, sampling={"number": 0})
    model = which.build_model()
    names = {f"weights/{name}" for name, part in model.named_children() if list(part.parameters())}
    assert set(which.after_evaluation(model)) == (names if asked else set())


@pytest.mark.parametrize(("kind", "told"), [("cuda", (0.85, torch.device("cuda", 1))), ("mps", (0.85,))])
def test_a_limit_on_memory(kind: str, told: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[Any, ...]] = []
    monkeypatch.setattr(getattr(torch, kind), "set_per_process_memory_fraction", lambda *a: limits.append(a))
    limit_memory(torch.device(kind, 1), 0.85)
    assert limits == [told]


def test_where_there_is_no_such_limit_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        task(memory={"max_memory_per_gpu": 0.5})
    assert "memory.max_memory_per_gpu: has no effect; torch limits no memory of a cpu" in caplog.text
