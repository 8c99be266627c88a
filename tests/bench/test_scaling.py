"""What `python -m bench.scaling` measures."""

from __future__ import annotations

import pytest

import tests.geometric  # noqa: F401  # before what loads it
from bench.scaling import SYSTEMS, measured, table


def test_the_gain_is_judged_by_turns_of_the_same_round() -> None:
    taken = {1: [1.0, 2.0, 1.0], 2: [1.25, 2.5, 1.25]}
    lines = "\n".join(table("sedd", taken, turn=2))
    assert "1.600 (1.60 to 1.60), bar 1.2: met" in lines
    assert "1 rank: 500 ms a step, 8,192 residues per second" in lines
    slow = "\n".join(table("sedd", {1: [1.0], 2: [1.9]}))
    assert "NOT MET" in slow


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("name", SYSTEMS)
def test_trainings_on_one_rank_and_on_more_take_turns(name: str) -> None:
    taken = measured(name, 3, turn=1)
    assert {world: len(each) for world, each in taken.items()} == dict.fromkeys(SYSTEMS[name].worlds, 2)
    assert all(second > 0 for seconds in taken.values() for second in seconds)
