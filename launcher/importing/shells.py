"""A `bash -c` around a program, and variables that hold the beginning of a command line. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from launcher.importing.programs import OF_RANKS, Inside, Reader, name_of
from launcher.importing.shell import statements
from launcher.importing.words import MOST_WORDS, NAME, Overgrown, assignment, literal
from launcher.launchers.foreign.asked import Asked


def shell(words: list[str], reader: Reader) -> Inside | None:
    """The one program that a `bash -c` starts; None: it is no such shell, or does more."""
    if (
        len(words) != 3
        or name_of(words[0]) not in ("bash", "sh", "zsh")
        or words[1] not in ("-c", "-lc", "-cl")
    ):
        return None
    text, quoted = _as_text(words[2], reader)
    if text is None:
        return None
    asked = Asked()
    program: list[str] = []
    for statement in statements(text):
        if statement.broken or statement.compound or len(statement.commands) != 1 or program:
            return None
        command = statement.commands[0]
        if command.heredocs or command.redirections or command.after == "&":
            return None
        inner = command.words[1:] if command.words[:1] == ["export"] else command.words
        pairs = [assignment(word) for word in inner]
        if inner and all(pairs):
            if any(pair and pair[0] not in OF_RANKS for pair in pairs):
                return None
            asked.drop(f"{' and '.join(pair[0] for pair in pairs if pair)}: castoff sets it in each rank")
            continue
        program = command.words
        while program and (
            ((pair := assignment(program[0])) and pair[0] in OF_RANKS) or program[0] == "exec"
        ):
            program = program[1:]
    if not program or assignment(program[0]):
        return None
    found, consumed = options_inlined(program, reader.lists)
    return Inside(found, asked, quoted, consumed)


def options_inlined(words: list[str], lists: Mapping[str, list[str]]) -> tuple[list[str], frozenset[str]]:
    """Words with those of a list in the place of a variable that holds options, or the beginning of the line.

    Down to the program: what it is given stays as it is. Also which variables these were.
    """
    found: list[str] = []
    consumed: set[str] = set()
    for at, word in enumerate(words):
        name = re.fullmatch(rf'"?\$\{{?({NAME})(?:\[[@*]\])?\}}?"?', word)
        held = lists.get(name[1]) if name else None
        if name and held == [] and word.startswith("$"):
            continue  # nothing is left of it
        if name and held and (at == 0 or (held[0].startswith("-") and not _has_program(found))):
            more, inner = options_inlined(
                held, {key: value for key, value in lists.items() if key != name[1]}
            )
            found += more
            if len(found) > MOST_WORDS:
                raise Overgrown
            consumed |= {name[1], *inner}
        else:
            found.append(word)
    return found, frozenset(consumed)


def _has_program(words: list[str]) -> bool:
    return any(word.endswith((".py", '.py"', ".py'")) for word in words)


def _as_text(word: str, reader: Reader) -> tuple[str | None, bool]:
    """What a shell is given to read, and whether another replaces variables before; None: nobody knows."""
    found = literal(word)
    if found is None and (whole := re.fullmatch(r'"?\$\{?(\w+)\}?"?', word)):
        found = reader.constants.get(whole[1])
    if found is not None:
        return found, False
    inner = word[1:-1]
    if word[0] == word[-1] == '"' and "`" not in inner and "$(" not in inner and '\\"' not in inner:
        return inner, True
    return None, False
