"""Warnings about a job's command, on standard error."""

from __future__ import annotations

from shutil import which

from castoff.launcher.config.job import COMMAND_LINE, JobSpec
from castoff.launcher.errors import Problem, report
from castoff.launcher.preflight.shell_words import near_miss, shell_warning
from castoff.launcher.typed.document import dotted

_TYPED = "--command"
"""The place of a program that follows `--`."""

NOWHERE = "is {!r}, which is not on PATH here{}"
"""A message about a program, and what may follow it."""


def report_shell_words(spec: JobSpec) -> None:
    """Report on standard error a word of a job's command that only a shell understands, or a program's name
    that is a likely mistake.
    """
    found = shell_warning(spec.command, typed=is_typed(spec))
    if found is None and spec.command and which(spec.command[0]) is None:
        meant = near_miss(spec.command[0])
        found = (0, NOWHERE.format(spec.command[0], f"; did you mean {meant}?")) if meant else None
    if found:
        path = ("command", found[0])
        where = spec.source.where(path) if spec.source else ""
        warn(Problem(where, dotted(path), found[1]))


def is_typed(spec: JobSpec) -> bool:
    """Whether the program followed `--` on the command line."""
    return spec.source is not None and spec.source.where(("command", 0)) == _TYPED


def warn(warning: Problem) -> None:
    """Report what may be wrong, with its place."""
    if warning.where == _TYPED:
        warning = Problem("the program", "", warning.message)
    where = "" if warning.where == COMMAND_LINE else warning.where
    report(f"warning: {Problem(where, warning.path, warning.message)}")
