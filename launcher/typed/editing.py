"""Changing single values of a YAML text that people keep: every other byte stays, their comments with it.

A library that reads and writes whole documents ties a comment to the value before it, and loses it with that
value. Here a change is one of lines, and afterwards the text is read again: it must say what was meant, and
nothing else may say anything new.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from castoff.launcher.errors import CastoffError
from castoff.launcher.typed.composing import CoreLoader, compose
from castoff.launcher.typed.document import Document

Path = tuple[str, ...]

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_INDENT = "  "


class CannotEdit(CastoffError):
    """A text is written in a way in which a value cannot be changed alone; people can."""


class _Place(NamedTuple):
    line: int
    column: int


class _Found(NamedTuple):
    """A path as far as the text has it."""

    parent: yaml.MappingNode | None
    """The innermost mapping that is there; None: the text holds nothing."""
    key: yaml.Node | None
    """The path's own key in it, if it is there."""
    value: yaml.Node | None
    depth: int
    """How many of the path's keys lead to the parent."""


def put(text: str, path: Path, value: str) -> str:
    """The text with a value at a path of keys: one line of YAML. Mappings that are missing are made.

    Raises:
        CannotEdit: it cannot be put there without changing more.
    """
    found = _find(text, path)
    key, here = _key(path[-1]), found.value
    if found.key is None or here is None:
        edited = _insert(text, found, path[found.depth :], [f"{key}: {value}"], value)
    else:
        lines = text.split("\n")
        start, end = _Place(found.key.end_mark.line, found.key.end_mark.column), _end(lines, found.key, here)
        colon = lines[start.line].index(":", start.column) + 1
        head, tail = lines[start.line][:colon], lines[end.line][end.column :]
        edited = _joined([*lines[: start.line], f"{head} {value}{tail}", *lines[end.line + 1 :]])
    return _verified(text, edited, path, _data("\n".join([f"{key}: {value}"]))[path[-1]])


def put_block(text: str, path: Path, lines: Sequence[str]) -> str:
    """The text with a mapping or a list at a path; `lines` are its key's and its own, with their comments.

    Raises:
        CannotEdit: it cannot be put there without changing more.
    """
    found = _find(text, path)
    meant = _data("\n".join(lines))[path[-1]]
    if found.key is None or found.value is None:
        return _verified(text, _insert(text, found, path[found.depth :], lines, None), path, meant)
    if found.parent is None or found.parent.flow_style:
        raise _cannot(path)
    old = text.split("\n")
    start, end = found.key.start_mark, _end(old, found.key, found.value)
    block = [" " * start.column + line if line else line for line in lines]
    return _verified(text, _joined([*old[: start.line], *block, *old[end.line + 1 :]]), path, meant)


def remove(text: str, path: Path) -> str:
    """The text without a key and its value; as it is where there is none.

    Raises:
        CannotEdit: it cannot be taken away without changing more.
    """
    found = _find(text, path)
    if found.key is None or found.value is None or found.parent is None:
        return text
    if len(found.parent.value) == 1 and len(path) > 1:
        return remove(text, path[:-1])
    if found.parent.flow_style:
        raise _cannot(path)
    lines = text.split("\n")
    end = _end(lines, found.key, found.value)
    edited = _joined([*lines[: found.key.start_mark.line], *lines[end.line + 1 :]])
    return _verified(text, edited, path, None)


def has(text: str, path: Path) -> bool:
    """Whether a text says something at a path."""
    return _find(text, path).key is not None


def _find(text: str, path: Path) -> _Found:
    node = compose(text, "profile", CoreLoader)
    if node is None:
        return _Found(None, None, None, 0)
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise _cannot(path)
        pair = next((pair for pair in node.value if pair[0].value == name), None)
        if pair is None or (depth < len(path) - 1 and _is_empty(pair[1])):
            return _Found(node, None, None, depth)
        if depth == len(path) - 1:
            return _Found(node, pair[0], pair[1], depth)
        if _is_alias(*pair):
            raise _cannot(path)
        node = pair[1]
    raise _cannot(path)


def _insert(text: str, found: _Found, rest: Path, lines: Sequence[str], value: str | None) -> str:
    """Text with new lines at the end of the mapping that is there; or in its braces."""
    for name in reversed(rest[:-1]):
        lines = [f"{_key(name)}:", *(_INDENT + line if line else line for line in lines)]
    old = text.split("\n")
    if found.parent is None:
        return _joined([*text.rstrip("\n").split("\n"), *lines] if text.strip() else lines)
    if found.parent.flow_style:
        if value is None:
            raise _cannot(rest)
        inner = value
        for name in reversed(rest[1:]):
            inner = f"{{{_key(name)}: {inner}}}"
        end = found.parent.end_mark
        at, comma = end.column - 1, ", " if found.parent.value else ""
        line = old[end.line]
        return _joined(
            [
                *old[: end.line],
                f"{line[:at]}{comma}{_key(rest[0])}: {inner}{line[at:]}",
                *old[end.line + 1 :],
            ]
        )
    key, last = found.parent.value[-1]
    indent, after = found.parent.start_mark.column, _end(old, key, last).line + 1
    empty = next((pair for pair in found.parent.value if pair[0].value == rest[0]), None)
    if empty is not None:  # a key without a value
        after = empty[0].start_mark.line
        old = [*old[:after], *old[after + 1 :]]
    block = [" " * indent + line if line else line for line in lines]
    apart = [""] if indent == 0 and len(block) > 1 and "" in old[:-1] else []
    return _joined([*old[:after], *apart, *block, *old[after:]])


def _end(lines: list[str], key: yaml.Node, value: yaml.Node) -> _Place:
    """Where a value ends, without the comments behind it."""
    if _is_alias(key, value):
        line = key.end_mark.line
        found = re.compile(r":\s*\*[^\s,\]}]+").match(lines[line], key.end_mark.column)
        if found is None:
            raise CannotEdit("it is an alias that stands in a line of its own")
        return _Place(line, found.end())
    if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        return _end(lines, *last) if isinstance(last, tuple) else _end(lines, key, last)
    if _is_empty(value):
        return _Place(key.end_mark.line, lines[key.end_mark.line].index(":", key.end_mark.column) + 1)
    end = _Place(value.end_mark.line, value.end_mark.column)
    if isinstance(value, yaml.ScalarNode) and value.style in ("|", ">"):
        line = end.line if end.column else end.line - 1
        while line > value.start_mark.line and not lines[line].strip():
            line -= 1
        return _Place(line, len(lines[line]))
    return end


def _is_alias(key: yaml.Node, value: yaml.Node) -> bool:
    """Whether a value is another's, by its name: then it has the places of that one."""
    there, here = value.start_mark, key.start_mark
    return (there.line, there.column) < (here.line, here.column)


def _is_empty(value: yaml.Node) -> bool:
    return isinstance(value, yaml.ScalarNode) and value.value == "" and not value.style


def _verified(before: str, after: str, path: Path, meant: Any) -> str:
    """The edited text, of which it is known that it says what was meant and nothing else."""
    wanted = copy.deepcopy(_data(before) or {})
    inner = wanted
    for name in path[:-1]:
        if inner.get(name) is None:
            inner[name] = {}
        inner = inner[name]
    if meant is None and path[-1] in inner and not has(after, path):
        del inner[path[-1]]
    else:
        inner[path[-1]] = meant
    try:
        held = _data(after) or {}
    except CastoffError as error:
        raise _cannot(path) from error
    if held != wanted:
        raise _cannot(path)
    return after


def _data(text: str) -> Any:
    return Document.parse(text, "profile").data


def _joined(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    return text if text.endswith("\n") else text + "\n"


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _cannot(path: Path) -> CannotEdit:
    return CannotEdit(f"{'.'.join(path)}: cannot be changed alone as it is written there; change it by hand")
