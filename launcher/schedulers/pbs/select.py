"""Reads and writes the chunks in qsub's -l select. Pure.

castoff reads chunks like OpenPBS's parse_plus_spec_r() and parse_chunk_r() (src/lib/Libifl/grunt_parse.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from castoff.launcher.errors import shown

# The patterns are compiled on use, since most jobs need none of them.
_PART = r"""(?:"[^"]*"|'[^']*'|[^+"'])+"""
_COUNT = r"\s*([0-9]+)\s*(?::|\Z)"
_RESOURCE = r"""(?s)\s*([A-Za-z][^\s=:]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^:"'\s][^:]*))\s*(?::|\Z)"""
_UNQUOTED = r"[^\s:,()]+"
_PLAIN = r"(?! )[ -~]*(?![ ,])[ -~]"


class Chunk(msgspec.Struct, frozen=True):
    """A number of identical chunks, and what each of them requests."""

    number: int
    resources: Mapping[str, str]
    """The resources of each chunk, by name as written; PBS ignores the case of names."""


def parse_select(text: str) -> list[Chunk]:
    """Read chunks such as `2:ncpus=8:ngpus=1+1:mem=64gb`.

    Raises:
        ValueError: qsub would refuse the text; the message says where.
    """
    parts: list[str] = []
    end = 0
    for part in re.finditer(_PART, text):
        between = text[end : part.start()]
        if between != ("+" if parts else ""):
            break
        parts.append(part.group())
        end = part.end()
    if not parts or end < len(text):
        raise ValueError(f"{shown(text)} is not a select specification, such as 2:ncpus=8:ngpus=1+1:mem=64gb")
    return [_chunk(part) for part in parts]


def _chunk(text: str) -> Chunk:
    number, position = 1, 0
    if count := re.match(_COUNT, text):
        number, position = int(count.group(1)), count.end()
    resources: dict[str, str] = {}
    while position < len(text) or (position and text[position - 1] == ":"):
        if (match := re.compile(_RESOURCE).match(text, position)) is None:
            raise ValueError(
                f"{shown(text)} is not a chunk, such as 2:ncpus=8:mem=64gb, from {shown(text[position:])} on"
            )
        name, *values = match.groups()
        if name.lower() in map(str.lower, resources):
            raise ValueError(f"{shown(text)} asks for {name} twice")
        resources[name] = next(value for value in values if value is not None).rstrip()
        position = match.end()
    if not number and not resources:
        raise ValueError(f"{shown(text)} is not a chunk: it asks for nothing")
    return Chunk(number, resources)


def select_text(chunks: Iterable[Chunk]) -> str:
    """Write chunks in the syntax of -l select, without the quotes that qsub needs around them.

    Raises:
        ValueError: PBS can hold no such value.
    """
    return "+".join(
        ":".join([str(chunk.number), *map(_resource, chunk.resources.items())]) for chunk in chunks
    )


def _resource(item: tuple[str, str]) -> str:
    name, value = item
    return f"{name}={quoted(value)}"


def quoted(value: str) -> str:
    """Write a resource's value in a chunk, in quotes if the value needs them.

    Raises:
        ValueError: PBS can hold no such value.
    """
    if "+" in value:  # seen on 23.06.06 and cd7ab5e: a job with such a value stops all scheduling for a while
        raise ValueError(
            f"is {shown(value)}, but PBS's scheduler crashes at a + there, and no job would start"
        )
    if not re.fullmatch(_PLAIN, value) or re.search("['\"&]", value):
        takes = "plain ASCII without quotes and &, and no space or comma at its end"
        raise ValueError(f"is {shown(value)}, but PBS takes {takes}")
    return value if re.fullmatch(_UNQUOTED, value) else f'"{value}"'
