"""Selects the lines of a shell file that a script needs, like the C preprocessor.

`#if`, `#ifdef`, `#elif`, `#else`, `#endif` and `#include` are comments to a shell, so a file remains valid
shell. `#if` lists features that the script must all have: with `!word`, the script must not have the feature,
and `|` separates alternatives. `#ifdef` names a function that another file of the same script must define.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Set
from functools import cache

import msgspec

from castoff.launcher.errors import CastoffError

_DIRECTIVE = re.compile(r"#(if|ifdef|elif|else|endif|include)\b[ \t]*(.*?)[ \t]*")

_FUNCTION = re.compile(r"^(castoff_\w+)\(\)", re.MULTILINE)


class Conditions(msgspec.Struct, frozen=True):
    """The features and functions that conditions in a script's lines may name."""

    known: Container[str]
    """The features that exist; a condition that names any other feature is an error."""
    features: Set[str]
    """The features that this script has."""
    functions: Set[str] | None
    """The functions that the script's files define; None: any function that a condition names counts as
    defined.
    """
    included: Callable[[str], tuple[str, str]]
    """Returns the name and the text of a file that `#include` names. The function raises KeyError if there is
    no such file.
    """


class _Branch(msgspec.Struct, frozen=True):
    line: int
    outside: bool
    """Whether the lines around the condition are in the script."""
    taken: bool
    """Whether an earlier alternative of the condition has been chosen."""
    here: bool
    """Whether the current alternative is chosen."""


def chosen(name: str, text: str, conditions: Conditions) -> str:
    """Return the lines of a file that a script contains.

    Raises:
        CastoffError: a condition is wrong; the text names file and line.
    """
    lines: list[str] = []
    branches: list[_Branch] = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        here = not branches or branches[-1].here
        if not line.startswith("#") or not (found := _DIRECTIVE.fullmatch(line.rstrip("\n"))):
            if here:
                lines.append(line)
            continue
        word, rest = found.groups()
        try:
            if word == "include":
                if here:
                    lines.append(_include(rest, conditions))
            else:
                _branch(branches, number, word, rest, conditions)
        except (LookupError, ValueError) as error:
            raise CastoffError(f"blocks/{name}.sh:{number}: {line.strip()}: {error.args[0]}") from None
    if branches:
        raise CastoffError(f"blocks/{name}.sh:{branches[-1].line}: this #if has no #endif")
    return "".join(lines)


def functions_of(text: str) -> set[str]:
    """Return the functions that a file defines."""
    return set(_FUNCTION.findall(text))


def _branch(branches: list[_Branch], number: int, word: str, rest: str, conditions: Conditions) -> None:
    """Begin, change or end an alternative at a `#if`, `#elif`, `#else` or `#endif` line."""
    if word in ("if", "ifdef"):
        outside = not branches or branches[-1].here
        holds = _holds(rest, conditions) if word == "if" else _is_defined(rest, conditions)
        branches.append(_Branch(number, outside, holds, outside and holds))
        return
    if not branches:
        raise ValueError("there is no #if above")
    last = branches.pop()
    if word == "endif":
        return
    holds = not last.taken and (word == "else" or _holds(rest, conditions))
    branches.append(_Branch(last.line, last.outside, last.taken or holds, last.outside and holds))


def _holds(condition: str, conditions: Conditions) -> bool:
    alternatives = _alternatives(condition)
    for words in alternatives:
        for word, _ in words:
            if word not in conditions.known:
                raise ValueError(f"there is no feature {word!r}; docs/reference/templates.md has all of them")
    if not all(alternatives):
        raise ValueError("it names no feature")
    features = conditions.features
    return any(all((word in features) == wanted for word, wanted in words) for words in alternatives)


@cache
def _alternatives(condition: str) -> list[list[tuple[str, bool]]]:
    """Return the features that each alternative names, and whether each feature must be present. Cached,
    since most conditions are checked often.
    """
    return [
        [(word.removeprefix("!"), not word.startswith("!")) for word in alternative.split()]
        for alternative in condition.split("|")
    ]


def _is_defined(function: str, conditions: Conditions) -> bool:
    return conditions.functions is None or function in conditions.functions


def _include(what: str, conditions: Conditions) -> str:
    """Return the lines of an included file, under the conditions that apply in a node's program."""
    try:
        name, text = conditions.included(what)
    except KeyError:
        raise ValueError("there is no such file to include") from None
    return chosen(name, text, msgspec.structs.replace(conditions, features=conditions.features | {"node"}))
