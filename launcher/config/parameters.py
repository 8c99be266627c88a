"""Parameters of an array's members: the table of their values. Pure functions.

A value is a text, as spelled. What looks like a number of JSON, or true or false, is one in parameters.json.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from castoff.launcher.config.array_indices import MOST_MEMBERS
from castoff.launcher.errors import shown

if TYPE_CHECKING:
    from castoff.launcher.typed.document import FieldPath  # only here: it imports yaml

NAME = "[A-Za-z_][A-Za-z0-9_]*"
"""A pattern for a parameter's name."""

TOGETHER = "zip"
"""The name under which a mapping has the parameters whose values change together."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 100

Values = Mapping[str, Any]


class Block(msgspec.Struct, frozen=True):
    """Parameters whose values change together."""

    names: list[str]
    rows: list[list[str]]


class Table(msgspec.Struct, frozen=True):
    """The parameters of all members: each row of a block with each row of the others, the last block's
    fastest.
    """

    blocks: list[Block]

    @classmethod
    def of(cls, parameters: Values | Sequence[Values]) -> Table:
        """The table of a valid field `array.parameters`."""
        if not isinstance(parameters, Mapping):
            return cls([Block([*parameters[0]], [[*row.values()] for row in _in_one_order(parameters)])])
        return cls(
            [
                Block([*values], [[*row] for row in zip(*values.values(), strict=True)])
                if isinstance(values, Mapping)
                else Block([name], [[value] for value in values])
                for name, values in parameters.items()
            ]
        )

    @property
    def names(self) -> list[str]:
        """The parameters' names, in order."""
        return [name for block in self.blocks for name in block.names]

    @property
    def size(self) -> int:
        """The number of members."""
        return math.prod(len(block.rows) for block in self.blocks)

    def row(self, member: int) -> list[str]:
        """A member's values, in the order of the names."""
        chosen: list[list[str]] = []
        for block in reversed(self.blocks):
            member, number = divmod(member, len(block.rows))
            chosen.append(block.rows[number])
        return [value for row in reversed(chosen) for value in row]

    def values(self, member: int) -> dict[str, str]:
        """A member's values by name."""
        return dict(zip(self.names, self.row(member), strict=True))

    def values_of(self, name: str) -> list[str]:
        """The different values of a parameter, in order."""
        for block in self.blocks:
            if name in block.names:
                place = block.names.index(name)
                return list(dict.fromkeys(row[place] for row in block.rows))
        raise KeyError(name)

    def typed(self, member: int) -> dict[str, Any]:
        """A member's values as numbers, true, false or text."""
        return {name: json.loads(json_scalar(value)) for name, value in self.values(member).items()}


def _in_one_order(rows: Sequence[Values]) -> Iterator[Values]:
    """The rows, each with its values in the order of the first."""
    names = [*rows[0]]
    return (row if [*row] == names else {name: row[name] for name in names} for row in rows)


def size_of(parameters: Values | Sequence[Values]) -> int:
    """The number of members of a valid field `array.parameters`, without making its table."""
    if not isinstance(parameters, Mapping):
        return len(parameters)
    return math.prod(
        min(map(len, values.values()), default=0) if isinstance(values, Mapping) else len(values)
        for values in parameters.values()
    )


# --- Values -------------------------------------------------------------------------------------------


def json_scalar(value: str) -> str:
    """A value as JSON: a number as it is spelled, true, false, or a string."""
    if is_boolean(value):
        return value.lower()
    if is_number(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def is_boolean(value: str) -> bool:
    """Whether a value is true or false, as JSON, Python or a table spells it."""
    return value.lower() in ("true", "false") and value in (value.lower(), value.title(), value.upper())


def is_number(value: str) -> bool:
    """Whether a value looks like a finite number of JSON."""
    return (
        len(value) <= _LONGEST_NUMBER and _NUMBER.fullmatch(value) is not None and math.isfinite(float(value))
    )


def same(one: str, other: str) -> bool:
    """Whether two values are equal; numbers are compared as numbers."""
    if one == other:
        return True
    from decimal import Decimal, InvalidOperation  # late: only a selection needs it

    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return one.lower() == other.lower() in ("true", "false")


# --- Problems -----------------------------------------------------------------------------------------


def problems(parameters: Any) -> Iterator[tuple[FieldPath, str]]:
    """The problems of a field `array.parameters` whose values are valid alone."""
    if isinstance(parameters, str):
        if parameters.lower().endswith((".xlsx", ".xls", ".ods")):
            yield (), f"is {shown(parameters)}, a spreadsheet: save it as CSV (UTF-8), and name the .csv file"
            return
        what = "a file that ends in .csv or .tsv, which a job file or --set can name"
        yield (), f"is {shown(parameters)}, but takes lists of values by name, or {what}"
    elif not parameters:
        yield (), "is empty: give names and their values, as in {lr: [1e-3, 1e-4], seed: [0, 1]}"
    elif isinstance(parameters, Mapping):
        yield from _of_mapping(parameters)
    else:
        yield from _of_rows(parameters)


def _of_mapping(parameters: Values) -> Iterator[tuple[FieldPath, str]]:
    blocks: list[tuple[FieldPath, Values]] = []
    for name, values in parameters.items():
        if not isinstance(values, Mapping):
            blocks.append(((), {name: values}))
        elif name == TOGETHER:
            blocks.append(((name,), values))
        else:
            yield (name,), "is a mapping, but takes a list of values; only zip takes lists by name"
    for path, values in blocks:
        if not values:
            yield path, "is empty: give lists of the same length by name, or drop it"
        for name in (name for name, items in values.items() if not items):
            yield (*path, name), "is an empty list, so there would be no members: give its values, or drop it"
        lengths = {name: len(items) for name, items in values.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            yield path, f"takes lists of the same length, one value of each for a member: {listed}"
        for name in (name for name in values if path and name in parameters):
            yield (*path, name), "is also outside of zip: keep one of the two"
    if (count := size_of(parameters)) > MOST_MEMBERS:
        yield (), f"makes {count:,} members, but an array can have at most {MOST_MEMBERS:,}"


def _of_rows(rows: Sequence[Values]) -> Iterator[tuple[FieldPath, str]]:
    names = rows[0].keys()
    if not names:
        yield (0,), "is empty: give each parameter's value by name, as in {lr: 1e-3, seed: 0}"
        return
    for number, row in enumerate(rows):
        if row.keys() != names:
            lacks, has = [*(names - row.keys())], [*(row.keys() - names)]
            first = f"has no {', '.join(lacks)}" if lacks else f"has {', '.join(has)} too"
            yield (number,), f"{first}, unlike the first combination: each names the same parameters"
            return
    if len(rows) > MOST_MEMBERS:
        yield (), f"makes {len(rows):,} members, but an array can have at most {MOST_MEMBERS:,}"
