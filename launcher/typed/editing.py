"""Change single values of a YAML text that people maintain: every other line stays, with its comments.

A library that reads and writes whole documents attaches a comment to the value before it and loses both
together, and changes line breaks and spaces of other lines (tried with ruamel.yaml). This module replaces
lines and reads the result again, to check that the intended value has changed and nothing else.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from castoff.launcher.errors import CastoffError
from castoff.launcher.text.quoting import yaml_value, yaml_word
from castoff.launcher.typed.composing import CoreLoader, compose
from castoff.launcher.typed.document import Document

Path = tuple[str, ...]

_INDENT = "  "


class CannotEdit(CastoffError):
    """A value of the text cannot be changed automatically without changing other values."""


class _Position(NamedTuple):
    line: int
    column: int


class _Spot(NamedTuple):
    """The part of a path that the text contains."""

    parent: yaml.MappingNode | None
    """The innermost mapping on the path; None: the text has no value at all."""
    key: yaml.Node | None
    """The path's last key, if the text has it."""
    value: yaml.Node | None
    depth: int
    """The number of the path's keys that lead to `parent`."""


def put(text: str, path: Path, value: Any) -> str:
    """Put plain data at a path of keys, and return the text. Missing mappings are added.

    Raises:
        CannotEdit: this would change other values.
    """
    return _put(text, path, [f"{yaml_word(path[-1])}: {yaml_value(value)}"], value)


def put_block(text: str, path: Path, lines: Sequence[str]) -> str:
    """Put a mapping or a list at a path, and return the text; `lines` begin with the path's last key.

    Raises:
        CannotEdit: this would change other values.
    """
    return _put(text, path, lines, _data("\n".join(lines))[path[-1]])


def _put(text: str, path: Path, lines: Sequence[str], meant: Any) -> str:
    spot = _find(text, path)
    if spot.parent is None or spot.key is None or spot.value is None:
        return _verified(text, _insert(text, spot, path[spot.depth :], lines), path, meant)
    old = text.split("\n")
    start, end = spot.key.start_mark, _end(old, spot.key, spot.value)
    if len(lines) == 1:  # keep the key as it is spelled, and a comment after the value
        colon = old[start.line].index(":", spot.key.end_mark.column) + 1
        value = lines[0][len(yaml_word(path[-1])) + 1 :]
        block = [old[start.line][:colon] + value + old[end.line][end.column :]]
    elif spot.parent.flow_style:
        raise _cannot(path)
    else:
        block = _indented(lines, start.column)
    return _verified(text, _joined([*old[: start.line], *block, *old[end.line + 1 :]]), path, meant)


def remove(text: str, path: Path) -> str:
    """Remove a key and its value, and return the text; unchanged if it has no such key.

    Raises:
        CannotEdit: this would change other values.
    """
    spot = _find(text, path)
    if spot.parent is None or spot.key is None or spot.value is None:
        return text
    if len(spot.parent.value) == 1 and len(path) > 1:
        return remove(text, path[:-1])
    if spot.parent.flow_style:
        raise _cannot(path)
    lines = text.split("\n")
    end = _end(lines, spot.key, spot.value)
    edited = _joined([*lines[: spot.key.start_mark.line], *lines[end.line + 1 :]])
    return _verified(text, edited, path, None)


def has(text: str, path: Path) -> bool:
    """Whether a text has a key at a path."""
    return _find(text, path).key is not None


def _find(text: str, path: Path) -> _Spot:
    node = compose(text, "profile", CoreLoader)
    if node is None:
        return _Spot(None, None, None, 0)
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise _cannot(path)
        pair = next((pair for pair in node.value if pair[0].value == name), None)
        is_last = depth == len(path) - 1
        if pair is None or (not is_last and _is_empty(pair[1])):
            return _Spot(node, None, None, depth)
        key, value = pair
        if is_last:
            return _Spot(node, key, value, depth)
        if _is_alias(key, value):
            raise _cannot(path)
        node = value
    raise _cannot(path)


def _insert(text: str, spot: _Spot, missing: Path, lines: Sequence[str]) -> str:
    """Add new lines at the end of the innermost mapping, or a value inside its braces.

    `missing`: the keys of the path that the text does not have.
    """
    old = text.split("\n")
    if spot.parent is not None and spot.parent.flow_style:
        if len(lines) > 1:
            raise _cannot(missing)
        entry = lines[0]
        for name in reversed(missing[:-1]):
            entry = f"{yaml_word(name)}: {{{entry}}}"
        line, brace = spot.parent.end_mark.line, spot.parent.end_mark.column - 1
        comma = ", " if spot.parent.value else ""
        old[line] = old[line][:brace] + comma + entry + old[line][brace:]
        return _joined(old)
    for name in reversed(missing[:-1]):
        lines = [f"{yaml_word(name)}:", *_indented(lines, len(_INDENT))]
    if spot.parent is None:
        return _joined([*text.rstrip("\n").split("\n"), *lines] if text.strip() else lines)
    indent, after = spot.parent.start_mark.column, _end(old, *spot.parent.value[-1]).line + 1
    empty = next((key for key, _ in spot.parent.value if key.value == missing[0]), None)
    if empty is not None:  # remove a key without a value, which the new lines repeat
        after = empty.start_mark.line
        del old[after]
    block = _indented(lines, indent)
    blank = [""] if indent == 0 and len(block) > 1 and "" in old[:-1] else []
    return _joined([*old[:after], *blank, *block, *old[after:]])


def _indented(lines: Sequence[str], indent: int) -> list[str]:
    return [" " * indent + line if line else line for line in lines]


def _end(lines: list[str], key: yaml.Node, value: yaml.Node) -> _Position:
    """The end of a value, without a comment after it."""
    line, column = key.end_mark.line, key.end_mark.column
    if _is_alias(key, value):
        alias = re.compile(r":\s*\*[^\s,\]}]+").match(lines[line], column)
        if alias is None:
            raise CannotEdit("its alias is on a line of its own; change it by hand")
        return _Position(line, alias.end())
    if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        return _end(lines, *last) if isinstance(last, tuple) else _end(lines, key, last)
    if _is_empty(value):
        return _Position(line, lines[line].index(":", column) + 1)
    end = _Position(value.end_mark.line, value.end_mark.column)
    if isinstance(value, yaml.ScalarNode) and value.style in ("|", ">"):  # its end mark is after blank lines
        line = end.line if end.column else end.line - 1
        while line > value.start_mark.line and not lines[line].strip():
            line -= 1
        return _Position(line, len(lines[line]))
    return end


def _is_alias(key: yaml.Node, value: yaml.Node) -> bool:
    """Whether a value is an alias: it then has the position of its anchor, which is before the key."""
    anchor, name = value.start_mark, key.start_mark
    return (anchor.line, anchor.column) < (name.line, name.column)


def _is_empty(value: yaml.Node) -> bool:
    return isinstance(value, yaml.ScalarNode) and value.value == "" and not value.style


def _verified(before: str, after: str, path: Path, meant: Any) -> str:
    """Return the edited text if only the value at `path` has changed as intended; else raise CannotEdit."""
    expected = copy.deepcopy(_data(before) or {})
    parent = expected
    for name in path[:-1]:
        if parent.get(name) is None:
            parent[name] = {}
        parent = parent[name]
    if meant is None and path[-1] in parent and not has(after, path):
        del parent[path[-1]]
    else:
        parent[path[-1]] = meant
    try:
        data = _data(after) or {}
    except CastoffError as error:
        raise _cannot(path) from error
    if data != expected:
        raise _cannot(path)
    return after


def _data(text: str) -> Any:
    return Document.parse(text, "profile").data


def _joined(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    return text if text.endswith("\n") else text + "\n"


def _cannot(path: Path) -> CannotEdit:
    return CannotEdit(f"{'.'.join(path)}: cannot be changed without changing other values; change it by hand")
