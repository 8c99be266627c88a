"""Finds the files that a job names: its program, scripts that setup sources, its interpreter. Pure.

Words that may not be paths are left out. A shell would expand `$DATA/run.sh` in setup, with values that
castoff does not have.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from castoff.launcher.config.job import JobSpec
from castoff.launcher.preflight.shell_words import is_python, is_shell

_PYTHON_VALUES = ("-W", "-X", "--check-hash-based-pycs")
"""Options of Python that take a value (https://docs.python.org/3/using/cmdline.html)."""

_HARMLESS = (
    "module",
    "ml",
    "source",
    ".",
    "conda",
    "mamba",
    "export",
    "unset",
    "set",
    "ulimit",
    "umask",
    "echo",
)
"""Setup commands that create no file and do not change the folder."""

_EXPANDED = re.compile(r"[$`*?\[{]")
"""Characters that a shell would expand."""


class Named(NamedTuple):
    """A file that a job names."""

    field: str
    """The field that names it: `command.1`."""
    word: str
    """The word as the user wrote it."""
    runs: bool = False
    """Whether it is executed, so that it must be executable."""


class Module(NamedTuple):
    """A Python module that `python -m` runs."""

    field: str
    name: str


def program(command: Sequence[str]) -> Named | Module | None:
    """The program's file or module; None if the command does not show which word it is."""
    if not command:
        return None
    if is_python(command[0]):
        return _after_options(command, _PYTHON_VALUES, modules=True)
    if is_shell(command[0]):
        return _after_options(command, ("-o", "-O", "+O", "+o", "--rcfile", "--init-file"), modules=False)
    return Named("command.0", command[0], runs=True)


def _after_options(
    command: Sequence[str], takes_word: tuple[str, ...], *, modules: bool
) -> Named | Module | None:
    """The first argument of an interpreter; None if it runs text (`-c`) or standard input."""
    index = 1
    while index < len(command):
        word = command[index]
        if word in takes_word:
            index += 2
        elif word == "-m" and modules:
            name = command[index + 1] if index + 1 < len(command) else ""
            return Module(f"command.{index + 1}", name) if name else None
        elif word == "-" or re.match(r"-[A-Za-z]*[cms]", word):  # combined options, too: -mtrain, -Bc
            return None
        elif word.startswith(("-", "+")):
            index += 1
        else:
            return Named(f"command.{index}", word)
    return None


def sourced(setup: Sequence[str]) -> Iterator[Named]:
    """The files that setup sources by paths in which a shell expands nothing."""
    for number, line in enumerate(setup):
        words = _words(line)
        if len(words) == 2 and words[0] in ("source", ".") and "/" in words[1]:
            yield Named(f"setup.{number}", words[1])


def loaded(setup: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The field and name of each environment module that setup loads."""
    for number, line in enumerate(setup):
        match _words(line):
            case ["module" | "ml", "load" | "add", *names] | ["ml", *names]:
                for name in names:
                    if re.fullmatch(r"[A-Za-z0-9][\w./+-]*", name):
                        yield f"setup.{number}", name


def others(spec: JobSpec) -> Iterator[Named]:
    """The other files that the job names: its interpreter, an image, files to stage."""
    if spec.python is not None:
        yield Named("python", spec.python, runs=True)
    image = spec.container.image
    if image is not None and image.startswith("/"):
        yield Named("container.image", image)
    for number, item in enumerate(spec.stage):
        if not _EXPANDED.search(item.source):
            yield Named(f"stage.{number}.from", item.source)


def makes_nothing(setup: Sequence[str]) -> bool:
    """Whether these lines neither create files nor change the folder, judged by their first words."""
    firsts = [line.split()[:1] for line in setup]
    plain = all(
        not first or first[0] in _HARMLESS or re.match(r"#|[A-Za-z_]\w*=", first[0]) for first in firsts
    )
    return plain and not any(re.search(r"[;&|>(`]", line) for line in setup)


def runs_scripts(setup: Sequence[str]) -> bool:
    """Whether one of these lines sources a user's script other than `activate`, which may do anything."""
    words = (line.split() for line in setup)
    return any(
        word[:1] in (["source"], ["."])
        and len(word) > 1
        and PurePosixPath(word[1]).name.strip("\"'") != "activate"
        and not word[1].startswith(("/etc/", "/opt/", "/usr/"))
        for word in words
    )


def changes_folder(setup: Sequence[str]) -> bool:
    """Whether one of these lines may change the folder in which the ranks start."""
    return any(re.search(r"\b(?:cd|pushd)\b", line) for line in setup)


def expands(word: str) -> bool:
    """Whether a shell would expand this word; a job's command is run without a shell."""
    return word.startswith("~") or "$" in word


def _words(line: str) -> list[str]:
    """The words of a line that is one simple command without expansions; otherwise empty."""
    if _EXPANDED.search(line) or re.search(r"[;&|<>()\n]", line):
        return []
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []
