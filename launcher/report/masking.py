"""Texts of a run without the values whose names look like secrets: a page is sent to others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from castoff.launcher.errors import InvalidInput
from castoff.launcher.runs.secrets import is_secret_name
from castoff.launcher.typed.composing import CoreLoader, compose

MASK = "***"

_QUOTED = r"""(?:'[^']*'|"(?:[^"\\]|\\.)*")"""
_BARE = r"""(?:\\.|[^\\\s'"`;&|(),\]}])"""
_WORD = rf"(?:\$?{_QUOTED}(?:{_QUOTED}|{_BARE})*|{_BARE}+)"
"""A word of a shell; one that begins without a quote ends at one, which may be that around it."""

_NAME = r"(?<![\w.-])(?P<name>[\w.-]+)"
"""Only from its beginning: a long word would be looked through from each of its letters."""

_ASSIGNED = re.compile(rf"{_NAME}(?P<is>=){_WORD}", re.DOTALL)
_OPTION = re.compile(
    rf"(?P<name>(?<!\S)--[A-Za-z][\w.-]*)(?P<is>[ \t]+)(?!-|[0-9.]+(?:\s|$)){_WORD}", re.DOTALL
)

_FIELD = re.compile(rf"{_NAME}(?P<is>[\"']?[ \t]*:[ \t]+)[^\n]+")
"""`NAME: value` on a line."""

_IN_ADDRESS = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
"""The password in `https://me:password@host`."""


def masked_script(text: str) -> str:
    """A shell's text."""
    return _IN_ADDRESS.sub(rf"\1{MASK}", _OPTION.sub(_masked, _ASSIGNED.sub(_masked, text)))


def masked_job(text: str) -> str:
    """A job file's text: YAML, with lines of a shell in it."""
    try:
        root = compose(text, "", CoreLoader)
    except InvalidInput:  # nothing that castoff submits
        return masked_script(_FIELD.sub(_masked, text))
    places = [] if root is None else sorted({*_secret(root)})
    for begin, end in reversed(places):
        ending = "\n" if text[begin:end].endswith("\n") else ""  # of a block
        text = f"{text[:begin]}{MASK}{ending}{text[end:]}"
    comments = re.sub(r"(?m)(?<!\S)#.*$", lambda found: _FIELD.sub(_masked, found.group()), text)
    return masked_script(comments)


def masked_words(words: Sequence[str]) -> list[str]:
    """The words of a command with secrets masked, even where an option's value is the next word."""
    before = ["", *words]
    return [
        MASK if _is_value(option, word) else masked_script(word)
        for option, word in zip(before, words, strict=False)
    ]


def masked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What a program was started with; a number is no secret."""
    return {
        path: MASK if isinstance(value, str) and value and is_secret_name(path) else value
        for path, value in parameters.items()
    }


def _masked(found: re.Match[str]) -> str:
    if not is_secret_name(found["name"]):
        return found.group()
    return f"{found['name']}{found['is']}{MASK}"


def _is_value(option: str, word: str) -> bool:
    """Whether a word is the secret value of the option before it."""
    takes = option.startswith("--") and "=" not in option and not word.startswith("-")
    takes = takes and not re.fullmatch("[0-9.]+", word)  # as that of --key-dim
    return takes and is_secret_name(option)


def _secret(node: yaml.Node) -> Iterator[tuple[int, int]]:
    """Where the values of such names begin and end."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and is_secret_name(key.value):
                yield from _scalars(value)
            else:
                yield from _secret(value)
    elif isinstance(node, yaml.SequenceNode):
        before = ""
        for value in node.value:
            word = value.value if isinstance(value, yaml.ScalarNode) else ""
            yield from _scalars(value) if _is_value(before, word) else _secret(value)
            before = word


def _scalars(node: yaml.Node) -> Iterator[tuple[int, int]]:
    if isinstance(node, yaml.ScalarNode):
        if node.value:
            yield node.start_mark.index, node.end_mark.index
    else:
        for part in node.value:
            yield from _scalars(part[1] if isinstance(part, tuple) else part)
