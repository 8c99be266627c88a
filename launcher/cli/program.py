"""Where a command line's program begins, when no `--` says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

JOB_FILES = (".yaml", ".yml", ".json")

INTERPRETERS = {".py": "python", ".sh": "bash"}
"""Interpreters of scripts that are no programs themselves, by the file's ending."""


def is_job_file(word: str) -> bool:
    """Whether the first word behind a verb's options is a job file: by its ending; any other file is one if
    this machine could not start it as a program.
    """
    if word.endswith(JOB_FILES):
        return True
    path = Path(word)
    is_file = path.exists() and not path.is_dir() and not os.access(path, os.X_OK)
    return is_file and not is_program(word)


def is_program(word: str) -> bool:
    """Whether a word is a script, or starts a program on this machine."""
    from shutil import which  # late: where `--` says it, nobody asks

    return word.endswith(tuple(INTERPRETERS)) or which(word) is not None


class TakesProgram(click.Command):
    """A verb that takes its program also without `--`: from the first word that is no option and no job file.

    That word and all behind it are the program's, as if `--` stood before it.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words before the program as click does."""
        at = first_word(self, ctx, args)
        if at is not None and is_job_file(args[at]):
            _refuse_directives(ctx, args[at])
        elif at is not None:
            ctx.obj = [*args[at:], *([] if ctx.obj is None else ["--", *ctx.obj])]
            args = args[:at]
        return super().parse_args(ctx, args)


class TakesJob(click.Command):
    """A verb that takes a job file, and a program only after `--`: its usage shows where that belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """click's, where there is no program among the words."""
        at = None if ctx.resilient_parsing else first_word(self, ctx, args)
        if at is not None and is_program(args[at]) and not is_job_file(args[at]):
            _refuse(ctx, args[:at], [*args[at:], *([] if ctx.obj is None else ["--", *ctx.obj])])
        if at is not None:
            _refuse_directives(ctx, args[at])
        if at is not None and ctx.obj is None and args[at + 1 : at + 2] and is_program(args[at + 1]):
            from castoff.launcher.text.quoting import visible_word

            line = " ".join(map(visible_word, [*args[: at + 1], "--", *args[at + 1 :]]))
            ctx.fail(f"a program follows --: {ctx.command_path} {line}")
        return super().parse_args(ctx, args)


def first_word(command: click.Command, ctx: click.Context, args: list[str]) -> int | None:
    """The position of the first word that is neither an option nor an option's value."""
    parser = command.make_parser(ctx)
    parser.allow_interspersed_args = False
    values: dict[str, Any]
    values, left, _ = parser.parse_args(list(args))
    found = isinstance(values.get("job"), str)  # it takes the first such word, and parses no further
    return len(args) - len(left) - 1 if found else None


def _refuse(ctx: click.Context, options: list[str], program: list[str]) -> None:
    """Fail, and show the command line that was meant."""
    from castoff.launcher.text.quoting import visible_word

    name = program[0]
    says = directives_in(name)
    if says is None:
        starts = INTERPRETERS.get(Path(name).suffix)
        meant = [*options, "--", *([starts] if starts and not os.access(name, os.X_OK) else []), *program]
        line = " ".join(map(visible_word, meant))
        says = f"is a program, not a job file; programs follow --: {ctx.command_path} {line}"
    ctx.fail(f"{visible_word(name)} {says}")


def _refuse_directives(ctx: click.Context, name: str) -> None:
    """Fail if a job file is a script for a scheduler's own command, whatever its name."""
    from castoff.launcher.text.quoting import visible_word

    if name.endswith(JOB_FILES) or not Path(name).is_file():  # a pipe can be read once
        return
    if (says := directives_in(name)) is not None:
        ctx.fail(f"{visible_word(name)} {says}")


def directives_in(path: str) -> str | None:
    """The message about a script for a scheduler's own command; None if it is none."""
    from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, queued_of
    from castoff.launcher.text.quoting import visible_word

    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            text = file.read(100_000)
    except (OSError, ValueError):
        return None
    for one in map(queued_of, HAVE_DIRECTIVES):
        if one.directive_mark in text:
            command = " ".join(one.submit_command)
            job_file = Path(path).with_suffix(".yaml").name
            writes = f"`castoff import {visible_word(path)} -o {visible_word(job_file)}` writes one for it"
            return f"is a script for {command}, not a job file; {writes}"
    return None
