"""Metrics as columns, those of several members one below the other; as a pandas DataFrame if pandas is
installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Columns = Mapping[str, Sequence[float | None]]


def joined(of_members: Mapping[int, Columns]) -> dict[str, list[float | None]]:
    """The columns of members one below the other, and their numbers in the column `member`."""
    lengths = {number: max(map(len, columns.values()), default=0) for number, columns in of_members.items()}
    names = dict.fromkeys(name for columns in of_members.values() for name in columns)
    numbers: list[float | None] = [number for number, length in lengths.items() for _ in range(length)]
    found = {"member": numbers}
    for name in names:
        found[name] = []
        for number, columns in of_members.items():
            found[name] += columns.get(name, [None] * lengths[number])
    return found


def as_table(columns: Columns) -> Any:
    """A pandas DataFrame if pandas is installed; otherwise the columns themselves."""
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)
