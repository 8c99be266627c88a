"""Hides values whose names look like secrets, since pages are sent to other people. Pure."""

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
"""A word of a shell. One that begins without a quote ends at a quote, which may enclose the
whole assignment.
"""

_NAME = r"(?<![\w.-])(?P<name>[\w.-]+)"
"""A name, matched only from its beginning, or else a long word would be searched from each letter."""

_ASSIGNED = re.compile(rf"{_NAME}(?P<is>=){_WORD}", re.DOTALL)
_OPTION = re.compile(
    rf"(?P<name>(?<!\S)--[A-Za-z][\w.-]*)(?P<is>[ \t]+)(?!-|[0-9.]+(?:\s|$)){_WORD}", re.DOTALL
)

_FIELD = re.compile(rf"{_NAME}(?P<is>[\"']?[ \t]*:[ \t]+)[^\n]+")
"""`NAME: value` on a line."""

_IN_ADDRESS = re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)")
"""The password in `https://me:password@host`."""


def masked_script(text: str) -> str:
    """Mask secrets in the text of a shell script."""
    return _IN_ADDRESS.sub(rf"\1{MASK}", _OPTION.sub(_masked, _ASSIGNED.sub(_masked, text)))


def masked_job(text: str) -> str:
    """Mask secrets in a job file: YAML with lines of shell."""
    try:
        root = compose(text, "", CoreLoader)
    except InvalidInput:  # not YAML: castoff submits no such job file
        return masked_script(_FIELD.sub(_masked, text))
    secrets = [] if root is None else sorted({*_secret(root)})
    for begin, end in reversed(secrets):
        ending = "\n" if text[begin:end].endswith("\n") else ""  # the end of a block scalar
        text = f"{text[:begin]}{MASK}{ending}{text[end:]}"
    comments = re.sub(r"(?m)(?<!\S)#.*$", lambda comment: _FIELD.sub(_masked, comment.group()), text)
    return masked_script(comments)


def masked_words(words: Sequence[str]) -> list[str]:
    """Mask secrets in the words of a command, even if an option's value is the next word."""
    before = ["", *words]
    return [
        MASK if _is_value(option, word) else masked_script(word)
        for option, word in zip(before, words, strict=False)
    ]


def masked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Mask secrets in a program's parameters. Numbers are kept."""
    return {
        path: MASK if isinstance(value, str) and value and is_secret_name(path) else value
        for path, value in parameters.items()
    }


def _masked(match: re.Match[str]) -> str:
    if not is_secret_name(match["name"]):
        return match.group()
    return f"{match['name']}{match['is']}{MASK}"


def _is_value(option: str, word: str) -> bool:
    """Whether a word is the value of the option before it, and secret."""
    takes = option.startswith("--") and "=" not in option and not word.startswith("-")
    takes = takes and not re.fullmatch("[0-9.]+", word)  # numbers are not secret, as in --key-dim 64
    return takes and is_secret_name(option)


def _secret(node: yaml.Node) -> Iterator[tuple[int, int]]:
    """The beginning and end of each secret value."""
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
