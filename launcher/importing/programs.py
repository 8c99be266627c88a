"""Programs that start other programs: how their words are read, and what is left. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from launcher.importing.words import Substitute, literal, value
from launcher.launchers.foreign.asked import Asked

OF_RANKS = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "GROUP_RANK",
    }
)
"""Variables that castoff sets in each rank."""


class Inside(NamedTuple):
    """A program without the one that starts it."""

    words: list[str]
    asked: Asked
    """`ranks_per_node`: how many it starts on each node; `nodes`, where it says how many there are."""
    quoted: bool = False
    """Whether its words are of a text in double quotes: replaced once outside, read once more inside."""
    consumed: frozenset[str] = frozenset()
    """Variables whose words were taken into account."""


class Reader(NamedTuple):
    """How words are understood."""

    known: Mapping[str, str]
    constants: Mapping[str, str]
    output_of: Substitute
    lists: Mapping[str, list[str]] = {}
    """The words of variables that hold several."""

    def plain(self, word: str) -> str:
        """What a word means, as far as options are concerned; as it is written where nobody knows."""
        found = value(word, self.known, self.output_of)
        return word if found is None else found

    def constant(self, word: str) -> str | None:
        """What a word means whatever the job is given; None: it depends on that."""
        return value(word, self.constants)


def name_of(word: str) -> str:
    """What a program is called, without its folder."""
    return PurePosixPath(literal(word) or word.strip("'\"")).name


def is_python(word: str) -> bool:
    """Whether a word names a Python interpreter."""
    return bool(re.fullmatch(r"python[0-9.]*", name_of(word))) or word.strip("\"'") in (
        "$PYTHON",
        "${PYTHON}",
    )
