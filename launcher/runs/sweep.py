"""What the index of runs says about an array's parameters: a few values of each, however many there are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from castoff.launcher.config.parameters import Table, json_scalar, same
from castoff.launcher.runs.records import Number

_VALUES, _CHARACTERS = 20, 2000
"""The maximum number of values of one parameter, and of characters in the values of all."""

_SHOWN = 4
"""The maximum number of values of one parameter in a list of runs."""


class Swept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter, and the values that an array's members have."""

    count: Number
    """The number of different values."""
    values: list[str] = []
    """The first values, as spelled."""
    last: str | None = None
    """The last value if all are whole numbers, each one more than the one before; else None."""

    def may_have(self, value: str) -> bool:
        """Whether a member may have this value; False is certain."""
        return len(self.values) < self.count or any(same(one, value) for one in self.values)

    @property
    def typed(self) -> list[Any]:
        """The first values as numbers, true, false or text."""
        return [json.loads(json_scalar(value)) for value in self.values]

    @property
    def words(self) -> str:
        """The values in a few words: `1e-3,1e-4` or `0..9`."""
        if self.last is not None and self.count > 2 and self.values:
            return f"{self.values[0]}..{self.last}"
        shown = self.values[:_SHOWN]
        return ",".join(shown if len(shown) == self.count else [*shown, "…"])


Sweep = Mapping[str, Swept]
"""What an array's members sweep, by the parameters' names; empty if they have no parameters."""


def sweep_of(table: Table | None) -> dict[str, Swept]:
    """Summarise the parameters of an array's members."""
    found: dict[str, Swept] = {}
    room = _CHARACTERS
    for name in table.names if table else ():
        assert table is not None
        values = table.values_of(name)
        first: list[str] = []
        for value in values[:_VALUES]:
            if (room := room - len(value)) < 0:
                break
            first.append(value)
        found[name] = Swept(len(values), first, values[-1] if _are_consecutive(values) else None)
    return found


def sweep_words(sweep: Sweep) -> str:
    """The parameters that differ between members, in one line: `lr=1e-3,1e-4 seed=0..9`."""
    varying = {name: swept for name, swept in sweep.items() if swept.count > 1} or sweep
    return " ".join(f"{name}={swept.words}" for name, swept in varying.items())


def may_have(sweep: Sweep, pairs: Iterable[tuple[str, str]]) -> bool:
    """Whether an array may have all of these values; False is certain."""
    return all(name in sweep and sweep[name].may_have(value) for name, value in pairs)


def _are_consecutive(values: list[str]) -> bool:
    first = values[0]
    if len(first) > 9 or not first.isdecimal():
        return False
    return values == [str(number) for number in range(int(first), int(first) + len(values))]
