"""The jobs of a group as a tree, each below the last of those for which it waits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Branch(NamedTuple):
    """A line of a tree."""

    name: str
    lines: str
    """The lines before the name, as `│  └─ `."""
    also: list[str]
    """The other jobs for which it waits."""


def direct(waits: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """For each job, those for which it waits and no other of them does.

    `waits`: all for which each job waits; each job comes after those.
    """
    bits: dict[str, int] = {}
    earlier: dict[str, int] = {}  # all before a job, as bits of one number: sets would fill the memory
    found: dict[str, list[str]] = {}
    for place, (name, others) in enumerate(waits.items()):
        known = [other for other in others if other in earlier]
        implied = 0
        for other in known:
            implied |= earlier[other]
        found[name] = [other for other in known if not implied & bits[other]]
        for other in known:
            implied |= bits[other]
        bits[name], earlier[name] = 1 << place, implied
    return found


def tree(waits: Mapping[str, Sequence[str]]) -> list[Branch]:
    """Draw jobs as a tree. `waits`: as for `direct`."""
    places = {name: place for place, name in enumerate(waits)}
    below: dict[str | None, list[str]] = {}
    also: dict[str, list[str]] = {}
    for name, others in direct(waits).items():
        parent = max(others, key=places.__getitem__, default=None)
        below.setdefault(parent, []).append(name)
        also[name] = [other for other in others if other != parent]
    drawn: list[Branch] = []
    left = [(name, "", "") for name in reversed(below.get(None, []))]
    while left:  # no recursion, since a chain of jobs may be long
        name, lines, indent = left.pop()
        drawn.append(Branch(name, lines, also[name]))
        children = below.get(name, [])
        for child in reversed(children):
            is_last = child == children[-1]
            left.append(
                (child, indent + ("└─ " if is_last else "├─ "), indent + ("   " if is_last else "│  "))
            )
    return drawn


def levels(waits: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """How many jobs must end one after another before each job."""
    found: dict[str, int] = {}
    for name, others in waits.items():
        found[name] = 1 + max((found[other] for other in others if other in found), default=-1)
    return found
