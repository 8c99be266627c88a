"""Finds words of a command that only a shell understands, and the command that has a shell read them. Pure.

castoff starts programs without a shell, so that every word reaches them unchanged. Words that a program may
well want, such as patterns with `|` or Hydra's `a=${b}` and `x>3`, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from castoff.launcher.text.quoting import is_shell_line, shell_word, visible_word, yaml_value, yaml_word

# Compiled at first use: a command without special characters needs few of them.
_PYTHON = r"(?:python|pypy)[0-9.]*t?"
_SHELL = r"(?:ba|da|k|z)?sh"

_BETWEEN = ("&&", "||", "|&", ">>", "&>", "2>", "2>&1", "1>&2", ">&2", "&>>", "2>>")
"""Words that no program takes."""
_PERHAPS_VALUES = ("|", ">", ";", "<", "&")
"""Words that may be the value of an option before them, such as `--delimiter ;`."""
_GLUED = r"(?:[12&]?>>?|<)(?:[\w.~$/{][\w./~${}+-]*)"
"""A redirection without a blank, such as `>out.log`."""
_LAST = r"[\w./-]+;"
"""The last word of a command, with a semicolon."""
_VARIABLE = (
    r"--?[a-z][\w-]*=\$\{?([A-Za-z_]\w*)\}?(?:/[\w./${}-]*)?"
    r"|\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})(?:/[\w./${}-]*)?"
)
"""A word that is a variable, or a path below one; or an option with such a value."""
_OF_SUBSTITUTION = r"\$\([a-z][^()]*\)|`[a-z][^`]*`"
_ASSIGNMENT = r"[A-Za-z_]\w*="

_SPECIAL = frozenset("|&;<>$`")
"""Characters of which each word that is meant for a shell has one."""

_JOINS = "which joins or redirects commands in a shell"

_BUILT_IN = (
    "alias",
    "eval",
    "exec",
    "export",
    "for",
    "if",
    "ml",
    "module",
    "set",
    "source",
    "ulimit",
    "while",
)
"""First words that are no programs, but of a shell."""
_KNOWN = ("accelerate", "apptainer", "deepspeed", "mpiexec", "mpirun", "python", "singularity", "torchrun")
"""Programs whose names, spelled otherwise, are taken for a mistake. Shorter ones have too many neighbours."""
_FOLLOWERS = frozenset(
    (
        *_KNOWN,
        *_BUILT_IN,
        *("bash", "cat", "cd", "cp", "echo", "grep", "gzip", "head", "mkdir", "mv", "rm", "sed", "sh"),
        *("sleep", "sort", "tail", "tar", "tee", "time", "wc"),
    )
)
"""Programs that follow an operator: after an option, such a word is only taken for one before these."""

_TAKES_OPERATORS = (
    r"\[|\[\[|(?:g|m|n)?awk|expr|fd|find|(?:e|f|z)?grep|jq|parallel|rg"
    r"|screen|sed|ssh|test|tmux|watch|xargs|yq"
)
"""Programs of which such words are arguments, or which pass them to a shell."""


def is_python(word: str) -> bool:
    """Whether the first word of a command is a Python interpreter, by its name."""
    return re.fullmatch(_PYTHON, PurePosixPath(word).name) is not None


def is_shell(word: str) -> bool:
    """Whether a word is a shell, by its name."""
    return re.fullmatch(_SHELL, PurePosixPath(word).name) is not None


def shell_warning(command: Sequence[str], *, typed: bool = False) -> tuple[int, str] | None:
    """The index of the first word of a command that only a shell understands, and the reason, with the
    command to write instead: a line of a job file, or, if it was `typed`, of a terminal. None: there is none.
    """
    if not command:
        return None
    plain = all(map(_SPECIAL.isdisjoint, command)) and {" ", "="}.isdisjoint(command[0])
    if plain and command[0] not in _BUILT_IN:
        return None
    if re.fullmatch(_TAKES_OPERATORS, PurePosixPath(command[0]).name):
        return None
    first = next(((n, kind) for n in _read_words(command) if (kind := _kind(command, n))), None)
    if reason := _of_program(command[0]):
        return 0, f"{reason}: write {_instead(command, typed, plain=first is None)}"
    if first is None:
        return None
    index, kind = first
    return (
        index,
        f"is {command[index]}, {kind}, but no shell reads the command: write {_instead(command, typed)}",
    )


def near_miss(word: str) -> str | None:
    """The well-known program that a first word most likely means; None: the word may be a program's name."""
    if "/" in word or is_python(word) or word in _KNOWN:
        return None
    return next((name for name in _KNOWN if _is_near(word, name)), None)


def _instead(command: Sequence[str], typed: bool, *, plain: bool = False) -> str:
    """The command that does what was meant. `plain`: no other word than the first needs a shell."""
    if plain and " " in command[0] and not is_shell_line(command[0]):
        words = [*command[0].split(), *command[1:]]
        return f"-- {' '.join(map(visible_word, words))}" if typed else f"`command: {yaml_value(words)}`"
    begin = command[0] if " " in command[0] else _quoted(command, 0)
    text = " ".join([begin, *(_quoted(command, index) for index in range(1, len(command)))])
    return f"-- bash -c {visible_word(text)}" if typed else f"`command: [bash, -c, {yaml_word(text)}]`"


def _of_program(first: str) -> str | None:
    """Why the first word is not a program, but for a shell; None: it may be one."""
    begin, blank, _ = first.partition(" ")
    if blank and "/" not in begin:
        return f"is {first!r}, a single word with a blank"
    if re.match(_ASSIGNMENT, first):
        return f"is {first!r}, but only a shell sets variables before a program; use env, or a shell"
    return f"is {first!r}, which is a command of shells, and no program" if first in _BUILT_IN else None


def _read_words(command: Sequence[str]) -> Iterator[int]:
    """The indices of the words after the program, up to a text that a shell or an interpreter runs."""
    for index, word in enumerate(command):
        if is_shell(word) and any(re.fullmatch(r"-[a-z]*c", one) for one in command[index + 1 : index + 4]):
            return
        if index and not (command[index - 1] == "-c" and is_python(command[0])):
            yield index


def _kind(command: Sequence[str], index: int) -> str | None:
    """What a word after the program is to a shell; None: it may be for the program."""
    word, before, after = command[index], command[index - 1], command[index + 1 : index + 2]
    if _SPECIAL.isdisjoint(word):
        return None
    is_value = before.startswith("-") and "=" not in before
    is_followed = any(PurePosixPath(one).name in _FOLLOWERS for one in after)
    joins = (
        word in _BETWEEN
        or (word in _PERHAPS_VALUES and (is_followed or not is_value))
        or (not is_value and re.fullmatch(_GLUED, word) and re.search(r"[A-Za-z]", word))
        or (is_followed and re.fullmatch(_LAST, word))
    )
    if joins:
        return _JOINS
    if (variable := re.fullmatch(_VARIABLE, word)) and (variable[2] or variable[3] or variable[1].isupper()):
        return "a variable"
    return "a command's output" if re.fullmatch(_OF_SUBSTITUTION, word) else None


def _quoted(command: Sequence[str], index: int) -> str:
    """A word for a shell, which joins and expands as the user meant."""
    word = command[index]
    kind = _kind(command, index) if index else None
    if kind == _JOINS:
        return word
    if kind:
        return f'"{word}"'
    if index == 0 and (assigned := re.match(_ASSIGNMENT, word)):
        return f"{assigned[0]}{shell_word(word[assigned.end() :])}"
    return shell_word(word)


def _is_near(word: str, name: str) -> bool:
    """Whether a word is a name with one letter too many, too few or wrong, but not the first, or with two
    neighbours exchanged.
    """
    if word == name or abs(len(word) - len(name)) > 1:
        return False
    at = next(
        (n for n, (a, b) in enumerate(zip(word, name, strict=False)) if a != b), min(len(word), len(name))
    )
    exchanged = word[at : at + 2] == name[at : at + 2][::-1] and word[at + 2 :] == name[at + 2 :]
    if exchanged and len(word) == len(name):
        return True
    rests = ((word[at + 1 :], name[at + 1 :]), (word[at + 1 :], name[at:]), (word[at:], name[at + 1 :]))
    return at > 0 and any(one == other for one, other in rests)
