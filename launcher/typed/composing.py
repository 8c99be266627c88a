"""Compose YAML text into nodes, with the line of every error.

Plain scalars are resolved by YAML 1.2's core rules, not by PyYAML's 1.1 ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import yaml

from castoff.launcher.errors import InvalidInput, Problem, printable

T = TypeVar("T")

_MAX_DEPTH = 100
"""Limit of nesting: libyaml's binding recurses in C, where deeper nesting would crash Python."""

_UNSEEN_BREAKS = re.compile("[\x85\u2028\u2029]")

_BRACES = re.compile(r"(?:^|[\s\[,])(\{\w+\}[^\s,\]}:'\"]+)")
"""A parameter at the beginning of a text without quotes, as in `{lr}/out`: YAML takes it for a mapping."""

TAG = "tag:yaml.org,2002:"
NULL, BOOL, INT, FLOAT = (TAG + kind for kind in ("null", "bool", "int", "float"))


class CoreLoader(yaml.CSafeLoader):  # type: ignore[misc, name-defined, unused-ignore]
    """Resolves plain scalars by https://yaml.org/spec/1.2.2/#1032-tag-resolution."""


CoreLoader.yaml_implicit_resolvers = {}

PATTERNS = {
    NULL: re.compile(r"(?:~|null|Null|NULL|)\Z"),
    BOOL: re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    INT: re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    FLOAT: re.compile(
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}

for _tag, _first in ((NULL, "~nN"), (BOOL, "tTfF"), (INT, "-+0123456789"), (FLOAT, "-+.0123456789")):
    CoreLoader.add_implicit_resolver(_tag, PATTERNS[_tag], [*_first, *([""] if _tag == NULL else [])])


def compose(text: str, origin: str, loader: type[Any]) -> yaml.Node | None:
    """The root node of a text; None if the text is empty. `origin`: the text's name in errors.

    Raises:
        InvalidInput: the text is not YAML, or has several documents.
    """
    return _composed(text, origin, lambda: yaml.compose(text, Loader=loader))


def compose_all(text: str, origin: str, loader: type[Any]) -> list[yaml.Node]:
    """The root nodes of a text's documents, which `---` separates.

    Raises:
        InvalidInput: the text is not YAML.
    """
    return _composed(text, origin, lambda: list(yaml.compose_all(text, Loader=loader)))


def _composed(text: str, origin: str, nodes: Callable[[], T]) -> T:
    # YAML 1.1, and so libyaml, ends lines, and even comments, at characters where editors do not.
    if unseen := _UNSEEN_BREAKS.search(text):
        code = ord(unseen.group())
        message = (
            f"contains a raw U+{code:04X}, which YAML readers take for a line break: "
            f'write it as \\u{code:04x} in double quotes, as in "a\\u{code:04x}b", or remove it'
        )
        raise _wrong(at_line(origin, text.count("\n", 0, unseen.start())), message)
    try:
        _refuse_depth(text, origin)
        return nodes()
    except UnicodeEncodeError as error:  # a lone surrogate: in Python, a byte that is not UTF-8
        line = text.count("\n", 0, error.start)
        message = f"is not UTF-8 text: {printable(text[error.start])} cannot be written"
    except yaml.MarkedYAMLError as error:
        raise not_yaml(error, origin, text) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n")
        message = f"is not valid YAML: {error.reason} (U+{error.character:04X})"
    raise _wrong(at_line(origin, line), message)


def not_yaml(error: yaml.MarkedYAMLError, origin: str, text: str = "") -> InvalidInput:
    """The error for the user from PyYAML's error in a text, with the line."""
    mark = error.problem_mark or error.context_mark
    hint = ""
    if found := _BRACES.search(text):
        hint = f'; quote a text that begins with braces: "{found[1]}"'
    return _wrong(at_line(origin, mark.line if mark else 0), f"is not valid YAML: {_explain(error)}{hint}")


def _explain(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's message, with the first line of an unfinished value, and advice on tabs and colons."""
    message = ", ".join(part for part in (error.context, error.problem) if part)
    if error.context_mark and error.problem_mark and error.context_mark.line != error.problem_mark.line:
        message += f" (it begins in line {error.context_mark.line + 1})"
    if "cannot start any token" in message:
        message += "; indent with spaces, not tabs, and quote a value that begins with % @ or `"
    if "mapping values are not allowed" in message:
        message += (
            "; begin the line in the same column as the one above, and quote a value that holds a colon"
        )
    return message


def _refuse_depth(text: str, origin: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=CoreLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            line = event.start_mark.line if event.start_mark else 0
            raise _wrong(at_line(origin, line), f"is nested more than {_MAX_DEPTH} levels deep")


def at_line(origin: str, line: int) -> str:
    """A line, counted from 0, as errors name it: FILE:LINE, or only the origin for a command line."""
    return origin if origin.startswith("--") else f"{origin}:{line + 1}"


def _wrong(where: str, message: str) -> InvalidInput:
    return InvalidInput([Problem(where, "", message)])
