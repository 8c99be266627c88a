"""Terms of other launchers and castoff's terms for the same, for error messages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from castoff.launcher.typed.document import Document
from castoff.launcher.typed.suggestion import suggestion


def hint(kind: str, word: str, known: list[str]) -> str:
    """The end of an error about a field or a verb that castoff does not have."""
    return of_others(kind, word, known) or suggestion(word, known)


def of_others(kind: str, word: str, known: list[str]) -> str:
    """castoff's term for a word of another launcher; empty if no launcher has it."""
    bare = re.sub("^(slurm|local|pbs)_", "", word)  # as submitit's executors have them
    meant = bare if bare in known else instead(kind, bare)
    return f"; here: {meant}" if meant else ""


def instead(kind: str, word: str) -> str | None:
    """The field or verb, or a sentence, for a word of another launcher; None if no launcher has it."""
    return _table(kind).get(word.strip("-").replace("-", "_"))


@cache
def _table(kind: str) -> dict[str, str]:
    rows = Document.read(Path(__file__).with_suffix(".yaml")).data.get(kind, {})
    return {word: meant for meant, words in rows.items() for word in words.split()}
