"""What a configuration may say of generated sets, and what is said where it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.trainers.gnn.causets.settings import MIX, Causets, read


def test_fields_have_defaults() -> None:
    problems: list[str] = []
    assert read({"number": 40}, "data.causets", problems) == Causets(number=40)
    assert problems == []
    assert Causets().kinds == MIX


def test_given_fields_are_used() -> None:
    found = read({"size": [10, 20], "kinds": {"cut": 1}, "seed": 3}, "data.causets", [])
    assert found == Causets(size=(10, 20), kinds={"cut": 1.0}, seed=3)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"number": 0}, "data.causets.number: is 0, but takes a whole number of at least 1"),
        ({"nunber": 1}, "data.causets.nunber: there is no such field; did you mean number?"),
        ({"size": [9, 8]}, "data.causets.size: is [9, 8], but takes the smaller number first"),
        ({"size": [2, 8]}, "data.causets.size.0: is 2, but takes a whole number from 8"),
        ({"size": 64}, "data.causets.size: is 64, but takes a list of 2"),
        ({"kinds": {"latice": 1}}, "data.causets.kinds.latice: there is no such kind; did you mean lattice?"),
        ({"kinds": {"cut": 0}}, "data.causets.kinds: is {'cut': 0}, but at least one weight must be above 0"),
        ({"kinds": {}}, "data.causets.kinds: is {}, but at least one weight must be above 0"),
        ({"kinds": {"cut": -1}}, "data.causets.kinds.cut: is -1, but takes a number of at least 0"),
        ({"kinds": {"cut": float("inf")}}, "data.causets.kinds: is {'cut': inf}"),
        ({"seed": -1}, "data.causets.seed: is -1, but takes a whole number of at least 0"),
        (7, "data.causets: is 7, but takes fields"),
    ],
)
def test_what_cannot_be(data: Any, problem: str) -> None:
    problems: list[str] = []
    assert read(data, "data.causets", problems) is None
    assert any(each.startswith(problem) for each in problems), problems


def test_every_mistake_is_reported() -> None:
    problems: list[str] = []
    read({"number": "x", "size": [9, 8], "kinds": {"cat": 1}, "other": 1}, "data.causets", problems)
    assert len(problems) == 4
