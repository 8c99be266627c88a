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
    return f"; here: {meant}" if meant else ""


def instead(kind: str, word: str) -> str | None:
    """castoff's field or verb for a term of another launcher, or a sentence about it; None for an unknown
    term.
    """
    return _table(kind).get(word.strip("-").replace("-", "_"))


@cache
def _table(kind: str) -> dict[str, str]:
    rows = Document.read(Path(__file__).with_suffix(".yaml")).data.get(kind, {})
    return {word: meant for meant, words in rows.items() for word in words.split()}
