"""Lines of a profile as castoff writes them: values, comments, and questions to a person. Pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from castoff.launcher.errors import printable

QUESTION = "# ?"
"""What a question's line begins with."""

_WIDTH = 100


def questions_of(text: str) -> int:
    """How many questions a profile's text holds."""
    return sum(line.lstrip().startswith(QUESTION) for line in text.splitlines())


def clean(lines: Iterable[str]) -> list[str]:
    """Lines in which what a scheduler said can be no more than one line of text each."""
    return [printable(line) for line in lines]


def ask_person(question: str, answer: list[str], indent: int = 0) -> Iterator[str]:
    """A question, and the lines that would answer it, as comments."""
    for number, line in enumerate(textwrap.wrap(" ".join(question.split()), _WIDTH - indent - 4)):
        yield " " * indent + (f"{QUESTION} {line}" if number == 0 else f"#   {line}")
    for line in answer:
        yield " " * indent + f"#     {line}"


def comment(text: str) -> Iterator[str]:
    """A comment, in lines that are not too long."""
    for line in textwrap.wrap(" ".join(text.split()), _WIDTH - 2):
        yield f"# {line}"


def fact(source: str, date: str, indent: int) -> Iterator[str]:
    """Where something is from, and since when."""
    yield " " * indent + f"source: {value_text(source)}"
    yield " " * indent + f"date: {date}"


def flow(values: Iterable[Any]) -> str:
    """A list in one line."""
    return f"[{', '.join(map(value_text, values))}]"


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9 ,./_+-]*(?<! )")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def value_text(value: Any) -> str:
    """A text as YAML, in double quotes where it would be more than text."""
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and ", " not in text
    return text if plain else json.dumps(text, ensure_ascii=False)
