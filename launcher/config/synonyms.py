"""castoff's names for the terms of other launchers, for error messages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from castoff.launcher.typed.document import Document
from castoff.launcher.typed.suggestion import suggestion


def hint(kind: str, word: str, known: list[str]) -> str:
    """The end of an error about an unknown field or verb."""
    return of_others(kind, word, known) or suggestion(word, known)


def of_others(kind: str, word: str, known: list[str]) -> str:
    """castoff's name for a term of another launcher; empty if no launcher uses the term."""
    bare = re.sub("^(slurm|local|pbs)_", "", word)  # prefixes of submitit's parameters
    meant = bare if bare in known else instead(kind, bare)
    if meant is None and kind == "JobSpec" and re.fullmatch("[A-Z][A-Z0-9]*_[A-Z0-9_]+", word):
        meant = f"env.{word}"  # spelled like a variable
    return f"; here: {meant}" if meant else ""


def instead(kind: str, word: str) -> str | None:
    """castoff's field or verb for a term of another launcher, or a sentence about it; None for an unknown
    term.
    """
    return _table(kind).get(word.strip("-").replace("-", "_"))


def of_verb(verb: str, option: str) -> str | None:
    """What to type in place of an option that a verb does not have, with the placeholders of the table; None
    if nothing is known of it. `a job`: verbs that take a job; `a verb`: all.
    """
    return _table(f"flags of {verb}").get(option)


def reader_names(option: str) -> list[str]:
    """The schedulers whose readers of scripts know an option."""
    return [scheduler for scheduler, words in _rows("read by").items() if option in words.split()]


def _table(kind: str) -> dict[str, str]:
    return {word: meant for meant, words in _rows(kind).items() for word in words.split()}


def _rows(kind: str) -> dict[str, str]:
    rows: dict[str, str] = _file().get(kind, {})
    return rows


@cache
def _file() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = Document.read(Path(__file__).with_suffix(".yaml")).data
    return tables
