"""Converts values that a checkpoint cannot keep, pandas tables and numpy arrays, to plain containers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

_KIND = "castoff.kind"
"""The key that marks a mapping as a converted value."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), Tensor)


class NotPortable(ValueError):
    """A part cannot be kept in a checkpoint; `where` is its place."""

    def __init__(self, where: str, value: Any):
        super().__init__(where, value)
        self.where = where
        self.value = value


def portable(value: Any, where: str = "") -> Any:
    """Convert a value to tensors, numbers, text and plain containers.

    Raises:
        NotPortable: a part is none of these, nor a table or an array.
    """
    if type(value) in _PLAIN:
        return value.detach().cpu().clone() if isinstance(value, Tensor) else value
    if type(value) is dict:
        return {_key(key, where): portable(part, f"{where}[{key!r}]") for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(portable(part, f"{where}[{number}]") for number, part in enumerate(value))
    if isinstance(value, numpy.generic):
        return {_KIND: "number", "value": _array(numpy.asarray(value), where, value)}
    if isinstance(value, numpy.ndarray):
        return {_KIND: "array", "value": _array(value, where, value)}
    if is_table(value):
        return _of_table(value, where)
    raise NotPortable(where, value)


def restored(value: Any) -> Any:
    """Convert the result of `portable` back."""
    if isinstance(value, Mapping):
        kind = value.get(_KIND)
        if kind is None:
            return {key: restored(part) for key, part in value.items()}
        if kind == "table":
            return _table(value)
        array = value["value"].numpy()
        return array if kind == "array" else array[()]
    if isinstance(value, (list, tuple)):
        return type(value)(map(restored, value))
    return value


def is_table(value: Any) -> bool:
    """Whether a value is a pandas DataFrame; pandas is not imported for this."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def _key(key: Any, where: str) -> Any:
    if type(key) not in (bool, int, float, str):
        raise NotPortable(f"{where}'s key", key)
    return key


def _array(value: Any, where: str, given: Any) -> Tensor:
    try:
        return torch.from_numpy(numpy.ascontiguousarray(value).reshape(value.shape).copy())
    except TypeError as error:  # an array of text or objects
        raise NotPortable(where, given) from error


def _of_table(table: Any, where: str) -> dict[str, Any]:
    columns = [
        [portable(name, where), str(table.dtypes.iloc[number]), _cells(table.iloc[:, number], where, name)]
        for number, name in enumerate(table.columns)
    ]
    return {_KIND: "table", "columns": columns, "index": _cells(table.index, where, "index")}


def _cells(column: Any, where: str, name: Any) -> list[Any]:
    return [portable(cell, f"{where}[{name!r}][{row}]") for row, cell in enumerate(column.tolist())]


def _table(kept: Mapping[str, Any]) -> Any:
    import pandas

    index = restored(kept["index"])
    columns = [
        pandas.Series(restored(cells), index=index, dtype=dtype) for _, dtype, cells in kept["columns"]
    ]
    table = pandas.concat(columns, axis=1) if columns else pandas.DataFrame(index=index)
    table.columns = pandas.Index([restored(name) for name, _, _ in kept["columns"]])
    return table
