"""The jobs of a group as a tree."""

from __future__ import annotations

from castoff.launcher.status.tree import direct, levels, tree

DIAMOND = {"base": [], "left": ["base"], "right": ["base"], "join": ["left", "right", "base"], "alone": []}


def drawn(waits: dict[str, list[str]]) -> list[str]:
    return [f"{one.lines}{one.name}{''.join(f' +{other}' for other in one.also)}" for one in tree(waits)]


def test_diamond() -> None:
    assert drawn(DIAMOND) == ["base", "├─ left", "└─ right", "   └─ join +left", "alone"]
    assert direct(DIAMOND)["join"] == ["left", "right"]
    assert levels(DIAMOND) == {"base": 0, "left": 1, "right": 1, "join": 2, "alone": 0}


def test_two_chains() -> None:
    waits = {"a": [], "b": ["a"], "c": ["b"], "d": ["a"], "e": ["d"]}
    assert drawn(waits) == ["a", "├─ b", "│  └─ c", "└─ d", "   └─ e"]


def test_a_long_chain() -> None:
    waits = {str(number): [str(number - 1)] if number else [] for number in range(3000)}
    assert len(tree(waits)) == 3000 and levels(waits)["2999"] == 2999


def test_others_are_left_out() -> None:
    assert drawn({"a": ["gone"]}) == ["a"] and tree({}) == []
