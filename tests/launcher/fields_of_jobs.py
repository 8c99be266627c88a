"""The fields of a job, from their declaration: a new one needs no further row in a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec

from castoff import JobSpec
from castoff.launcher.typed.structure import bare, fields_of, is_struct, members


def leaves(kind: type[msgspec.Struct], under: str = "") -> Iterator[str]:
    """The fields of a struct, down to those that hold no fields themselves."""
    for name, field in fields_of(kind).items():
        inner = [one for one in _structs(field.type) if one is not JobSpec]
        if not inner:
            yield under + name
        for one in inner:
            yield from leaves(one, f"{under}{name}.")


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    for option in members(bare(kind)):
        option = bare(option)
        if is_struct(option):
            yield option
        elif get_origin(option) in (list, dict):
            yield from _structs(get_args(option)[-1])


def type_of(name: str) -> Any:
    """The first type of a field, beside null."""
    kind: Any = JobSpec
    for part in name.split("."):
        (struct,) = (one for one in _structs(kind) if part in fields_of(one))
        kind = fields_of(struct)[part].type
    return next(bare(one) for one in members(bare(kind)) if one is not type(None))
