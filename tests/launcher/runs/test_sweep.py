"""What the index says about an array's parameters."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.config.parameters import Table
from castoff.launcher.runs.sweep import Swept, may_have, sweep_of, sweep_words


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"lr": ["1e-3", "1e-4"], "seed": [str(n) for n in range(10)]}, "lr=1e-3,1e-4 seed=0..9"),
        ({"seed": ["0", "1"], "data": ["a"]}, "seed=0,1"),
        ({"data": ["a"]}, "data=a"),
        ({"a": ["5", "6", "7", "8", "10"]}, "a=5,6,7,8,…"),
        ({"a": ["00", "01", "02"]}, "a=00,01,02"),
        ({"zip": {"a": ["x", "x", "y"], "b": ["3", "4", "5"]}}, "a=x,y b=3..5"),
        ({"seed": [str(n) for n in range(100_000)]}, "seed=0..99999"),
        ({"a": ["x" * 3000, "y"]}, "a=…"),
    ],
)
def test_words(parameters: dict[str, Any], words: str) -> None:
    assert sweep_words(sweep_of(Table.of(parameters))) == words


def test_it_is_small() -> None:
    table = Table.of({"a": [f"{n}.csv" for n in range(10_000)], "b": ["x" * 1500, "y" * 1500]})
    sweep = sweep_of(table)
    assert sweep["a"] == Swept(10_000, [f"{n}.csv" for n in range(20)])
    assert sweep["b"] == Swept(2, ["x" * 1500])
    assert sweep_of(None) == {}


def test_what_it_may_have() -> None:
    sweep = sweep_of(Table.of({"lr": ["1e-3", "1e-4"], "seed": [str(n) for n in range(50)]}))
    for pairs, answer in (
        ([("lr", "0.001")], True),
        ([("lr", "0.001"), ("seed", "70")], True),
        ([("lr", "1")], False),
        ([("size", "1")], False),
    ):
        assert may_have(sweep, pairs) is answer
    assert sweep["lr"].typed == [0.001, 0.0001]
