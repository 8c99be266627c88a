"""Checks plain arguments of a layer; errors begin with the argument's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from castoff.launcher.typed.suggestion import did_you_mean


def positive(**values: Any) -> list[str]:
    """Problems of values that must be whole numbers from 1."""
    return [
        f"{name}: is {value!r}, but takes a whole number of at least 1"
        for name, value in values.items()
        if type(value) is not int or value < 1
    ]


def a_share(**values: Any) -> list[str]:
    """Problems of values that must be shares, such as dropout."""
    return [
        f"{name}: is {value!r}, but takes a number from 0 to below 1"
        for name, value in values.items()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1
    ]


def a_switch(**values: Any) -> list[str]:
    """Problems of values that must be true or false."""
    return [
        f"{name}: is {value!r}, but takes true or false"
        for name, value in values.items()
        if not isinstance(value, bool)
    ]


def among(name: str, value: Any, known: Sequence[str]) -> list[str]:
    """Problems of a value that must be one of several words."""
    if value in known:
        return []
    return [f"{name}: is {value!r}, but takes {', '.join(known)}{did_you_mean(value, known)}"]


def a_list(name: str, value: Any, of: str) -> list[str]:
    """Problems of a value that must be a list that is not empty."""
    if isinstance(value, (list, tuple)) and value:
        return []
    return [f"{name}: is {value!r}, but takes a list of {of}"]
