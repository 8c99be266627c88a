"""The program of a launch line as a job file's `command`. Pure.

Where its words depend on the shell, a shell reads them in each rank, or once in setup, as ranks may differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from launcher.importing.programs import OF_RANKS
from launcher.importing.words import NAME, literal, split, variables
from launcher.quoting import shell_word

PROGRAM = "IMPORTED_PROGRAM"
"""The variable that takes words from setup to the ranks."""

FOLDER = "IMPORTED_DIR"

_FILLS_IN = "in each rank a shell fills in the variables"

_SIMPLE = re.compile(rf"(?:\$(?:{NAME}|\{{{NAME}\}})|[^$`*?\[~\\'\"(){{}}<>|&;\s!]|'[^']*')*")
_OF_THE_SCRIPT = re.compile(
    r"\$\{?(?:SLURM_(?:PROCID|LOCALID|NODEID)|HOSTNAME|SLURMD_NODENAME|PWD|RANDOM|SECONDS)\b"
)
"""Variables that are others in a rank than in the script."""


class Command(NamedTuple):
    """A job file's command, and what it needs."""

    words: list[str]
    setup: list[str]
    """Lines at the end of setup."""
    uses: set[str]
    """Variables that the ranks must see."""
    why: str
    """Why a shell stands in it; empty: none does."""


def command_of(
    words: list[str],
    constant: Callable[[str], str | None],
    *,
    behind: str = "",
    folder: bool = False,
    first: list[str] | None = None,
    quoted: bool = False,
    inside: bool = False,
) -> Command:
    """A command of words as they are written.

    `behind`: a redirection of its input, or a here-document. `folder`: whether it runs in the folder in which
    setup ends. `first`: variables that are set for the program alone, as `NAME=word`. `quoted`: the words
    are of a text in double quotes, which a shell reads once more. `inside`: a shell in each rank reads them.
    """
    values = _read_twice(words, constant) if quoted else [constant(word) for word in words]
    if all(found is not None for found in values) and not behind and not first:
        plain = [found or "" for found in values]
        if plain[1:2] in (["-c"], ["-lc"]) and plain[0].endswith("sh") and len(plain) == 3:
            plain[2] = plain[2].strip()
        if not folder:
            return Command(plain, [], set(), "")
        text = f'cd "${FOLDER}" && exec "$@"'
        return Command(
            ["bash", "-c", text, "bash", *plain],
            [f"export {FOLDER}=$PWD"],
            set(),
            "the script changes the folder",
        )
    start = f'cd "${FOLDER}" && ' if folder else ""
    setup = [f"export {FOLDER}=$PWD"] if folder else []
    if quoted:
        text = f'{start}eval "exec {" ".join(words)}"{behind}'
        return Command(["bash", "-c", text], setup, variables(text) - OF_RANKS, _FILLS_IN)
    sets = "".join(f"{one} " for one in first or [])
    pairs = [*zip(words, values, strict=True)]
    if inside or all(found is not None or _is_simple(word) for word, found in pairs):
        shown = [word if found is None else shell_word(found) for word, found in pairs]
        before = f"{sets}exec" if not sets else f"export {sets.strip()}; exec"
        text = f"{start}{before} {' '.join(shown)}{behind}"
        why = "in each rank a shell hands it its input" if behind else _FILLS_IN
        return Command(["bash", "-c", text], setup, variables(text) - OF_RANKS, why)
    return _worked_out(words, values, start, setup, f"export {sets.strip()}; " if sets else "", behind)


def _read_twice(words: list[str], constant: Callable[[str], str | None]) -> list[str | None]:
    """What a shell makes of the words of a text in double quotes, in which variables stand for several."""
    found: list[str | None] = []
    for text in (constant(f'"{word}"') for word in words):
        found += [None] if text is None else map(literal, split(text))
    return found


def _is_simple(word: str) -> bool:
    """Whether nothing but plain variables stands in it, so that it means the same wherever they do."""
    if _OF_THE_SCRIPT.search(word):
        return False
    word = re.sub(rf"\$\(\((?:[\w\s*/+%-]|\$(?:{NAME}|\{{{NAME}\}}))*\)\)", "0", word)
    inner = word[1:-1] if len(word) > 1 and word[0] == word[-1] == '"' else word
    quoted = re.sub(r'"((?:[^"\\$`]|\$\w|\$\{\w+\})*)"', lambda found: found[1].replace(" ", ""), inner)
    return bool(_SIMPLE.fullmatch(quoted.replace(" ", "") if inner is not word else quoted))


def _worked_out(
    words: list[str], values: list[str | None], start: str, setup: list[str], sets: str, behind: str
) -> Command:
    """Words that setup works out, once, as the script does; but for those that castoff sets in each rank."""
    pieces: list[str] = []
    group: list[str] = []

    def close() -> None:
        if group:
            pieces.append("\"$(printf ' %q' " + " ".join(group) + ')"')
        group.clear()

    for word, found in zip(words, values, strict=True):
        if found is None and variables(word) & OF_RANKS:
            close()
            pieces.append(shell_word(f" {word}"))
        else:
            group.append(word)
    close()
    line = f"export {PROGRAM}={''.join(pieces)}"
    text = f'{start}{sets}eval "exec ${PROGRAM}"{behind}'
    why = "setup works out its words, as the script did before the ranks start"
    return Command(["bash", "-c", text], [*setup, line], set(), why)
