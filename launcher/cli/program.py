"""Find where the program begins in a command line without `--`."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from castoff.launcher.cli.script_files import INTERPRETERS, JOB_FILES, directives_in, is_program


def is_job_file(word: str) -> bool:
    """Whether the first word after a verb's options is a job file: by its suffix, or because it is a file
    that this machine could not start as a program.
    """
    if word.endswith(JOB_FILES):
        return True
    path = Path(word)
    is_file = path.exists() and not path.is_dir() and not os.access(path, os.X_OK)
    return is_file and not is_program(word)


class TakesProgram(click.Command):
    """A verb whose program may follow without `--`: it begins at the first word that is not an option or a
    job file.

    That word and all after it are the program's, as if `--` came before them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the program's words in `ctx.obj`, and let click parse the words before them."""
        try:
            first = first_word(self, ctx, args)
        except click.UsageError:
            _refuse_misread(self, ctx, args)
            raise
        _refuse_misread(self, ctx, args if first is None else args[: first + 1])
        if first is not None and is_job_file(args[first]):
            _refuse_directives(ctx, args[first])
        elif first is not None:
            ctx.obj = [*args[first:], *([] if ctx.obj is None else ["--", *ctx.obj])]
            args = args[:first]
        return super().parse_args(ctx, args)


class TakesJob(click.Command):
    """A verb that takes a job file, and a program only after `--`; its errors show where `--` belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a program without `--` and a script for sbatch, qsub or flux batch; else parse as click."""
        _refuse_misread(self, ctx, args)
        first = None if ctx.resilient_parsing else first_word(self, ctx, args)
        if first is not None and is_program(args[first]) and not is_job_file(args[first]):
            _refuse(ctx, args[:first], [*args[first:], *([] if ctx.obj is None else ["--", *ctx.obj])])
        if first is not None:
            _refuse_directives(ctx, args[first])
        after = [] if first is None else args[first + 1 :]
        if first is not None and ctx.obj is None and after and is_program(after[0]):
            from castoff.launcher.text.quoting import visible_word

            line = " ".join(map(visible_word, [*args[: first + 1], "--", *after]))
            ctx.fail(f"a program follows --: {ctx.command_path} {line}")
        return super().parse_args(ctx, args)


def first_word(command: click.Command, ctx: click.Context, args: list[str]) -> int | None:
    """The position of the first word that is neither an option nor an option's value."""
    parser = command.make_parser(ctx)
    parser.allow_interspersed_args = False
    values: dict[str, Any]
    values, left, _ = parser.parse_args(list(args))
    has_word = isinstance(values.get("job"), str)  # the parser stops after this argument
    return len(args) - len(left) - 1 if has_word else None


_MISREAD = re.compile(
    r"-[A-Za-z]{2}[A-Za-z_-]*(=.*)?|(s|sec|second|m|min|minute|h|hr|hour|d|day)s?", re.DOTALL | re.IGNORECASE
)
"""Words that may be a long option with one hyphen, or the unit of a number before it."""


def _refuse_misread(command: click.Command, ctx: click.Context, words: list[str]) -> None:
    """Fail if click would read words as something else than was meant: `-nodes 2`, `--walltime 2 hours`, or
    an option as the value of the one before it.
    """
    if ctx.resilient_parsing:
        return
    options = [option for option in command.params if isinstance(option, click.Option)]
    flags = {flag for option in options for flag in option.opts}
    valued = {flag for option in options if not (option.is_flag or option.count) for flag in option.opts}
    for word, after in pairwise(words):
        if word in valued and after in flags:
            raise click.BadOptionUsage(word, f"Option {word!r} requires an argument.", ctx)
    if not any(map(_MISREAD.fullmatch, words)):
        return
    from castoff.launcher.cli.corrections import misread
    from castoff.launcher.cli.translation import Typed

    if (message := misread(Typed(command, ctx.command_path, words, ctx.obj))) is not None:
        ctx.fail(message)


def _refuse(ctx: click.Context, options: list[str], program: list[str]) -> None:
    """Fail, and show the command line that the user probably meant."""
    from castoff.launcher.text.quoting import visible_word

    name = program[0]
    message = directives_in(name)
    if message is None:
        starts = INTERPRETERS.get(Path(name).suffix)
        runs = [starts] if starts and not os.access(name, os.X_OK) else []
        is_here = not runs and "/" not in name and Path(name).is_file()
        program = [*runs, f"./{name}" if is_here else name, *program[1:]]
        line = " ".join(map(visible_word, [*options, "--", *program]))
        message = f"is a program, not a job file; programs follow --: {ctx.command_path} {line}"
    ctx.fail(f"{visible_word(name)} {message}")


def _refuse_directives(ctx: click.Context, name: str) -> None:
    """Fail if the file is a script for sbatch, qsub or flux batch, except if it is named like a job file."""
    from castoff.launcher.text.quoting import visible_word

    if Path(name).is_dir():
        files = [path for path in sorted(Path(name).iterdir()) if path.suffix in JOB_FILES]
        here = f"; here: {ctx.command_path} {visible_word(str(files[0]))}" if len(files) == 1 else ""
        ctx.fail(f"{visible_word(name)} is a folder, not a job file{here}")
    if name.endswith(JOB_FILES) or not Path(name).is_file():  # a pipe can be read only once, by the verb
        return
    if (message := directives_in(name)) is not None:
        ctx.fail(f"{visible_word(name)} {message}")
