"""Streams that follow from what is known."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from castoff.trainers.distributed import randomness
from castoff.trainers.distributed.randomness import Stream, derived, seed_all


def test_all_generators_are_seeded() -> None:
    drawn = []
    for _ in range(2):
        seed_all(derived(1, 2, 3))
        drawn.append((float(torch.rand(())), random.random(), np.random.random(), np.random.randn()))
    assert drawn[0] == drawn[1]
    seed_all(derived(1, 2, 4))
    assert not {float(torch.rand(())), random.random(), np.random.random()} & set(drawn[0])


def test_torchs_stream_is_that_of_manual_seed() -> None:
    seed_all(7)
    mine = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(mine, torch.rand(3))


@pytest.mark.parametrize(("used", "seeds"), [(True, [7]), (False, [])])
def test_a_device_is_seeded_once_it_is_in_use(
    used: bool, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    device: Any = SimpleNamespace(is_initialized=lambda: used, manual_seed=given.append)
    monkeypatch.setattr(randomness, "_device_module", lambda: device)
    seed_all(7)
    assert given == seeds


def test_derived_numbers_do_not_repeat() -> None:
    numbers = {derived(a, b, c) for a in range(10) for b in range(10) for c in range(10)}
    assert len(numbers) == 1000
    assert all(0 <= number < 1 << 63 for number in numbers)


def test_a_stream_knows_the_beginning() -> None:
    assert Stream(1, 2, 3).seed(4) == Stream(1).seed(2, 3, 4) == derived(1, 2, 3, 4)
