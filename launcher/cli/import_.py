"""castoff import: write a job file for a script for sbatch, qsub or flux batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import json_option, print_json, report
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.text.quoting import visible_word

if TYPE_CHECKING:
    from castoff.launcher.importing.imported import Imported
    from castoff.launcher.importing.script import Wish

INCOMPLETE = 3
"""The exit code if the job file cannot express a directive, or castoff cannot start the ranks."""

_LONGEST = 900_000
"""Limit of a script's size, in bytes: a job file contains the script, and may have a million bytes."""


@click.command(
    "import", epilog=examples("castoff import train.sbatch", "castoff import train.sbatch -o job.yaml")
)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The job file to write, which may not exist yet; - prints it.",
)
@click.option(
    "--ranks", is_flag=True, help="Let castoff start the ranks; fail, with the reason, if it cannot."
)
@click.option("--driver", is_flag=True, help="Keep the script whole in any case.")
@json_option
def command(script: Path, output: Path | None, ranks: bool, driver: bool, as_json: bool) -> int:
    """Write a job file for SCRIPT, which is read and never run.

    The job stays the same. castoff starts its ranks if this is certain to change nothing; otherwise the job
    file contains the whole script, and standard error gives the reason. The exit code is 3 if a job file
    cannot express a directive.
    """
    from castoff.launcher.importing.lifting import WITHOUT_PARSER
    from castoff.launcher.importing.script import (  # late: completion waits for imports
        NotAScript,
        read_script,
    )
    from castoff.launcher.importing.writing import job_file
    from castoff.launcher.process import files

    if ranks and driver:
        raise CastoffError("--ranks and --driver exclude each other: give one of the two")
    wish: Wish | None = "ranks" if ranks else "driver" if driver else None
    shown = printable(str(script))
    if output == Path("-"):
        output = None
    if output is not None and os.path.lexists(output):
        raise CastoffError(f"{printable(str(output))}: exists already; name another file, or remove it")
    try:
        result = read_script(_text(script), script.name, wish)
    except NotAScript as error:
        error.args = (f"{shown}: {str(error).replace(' FILE ', f' {visible_word(str(script))} ')}",)
        raise
    fails = wish == "ranks" and bool(result.kept)
    if fails and result.kept == WITHOUT_PARSER:
        raise CastoffError(f"--ranks: {WITHOUT_PARSER}")
    text = None if fails else job_file(result, script.name, result.scheduler or "NAME")
    if text is not None and output is not None:
        try:
            files.replace(output, text, 0o644)
        except OSError as error:
            raise CastoffError(f"{printable(str(output))}: cannot be written: {error.strerror}") from error
    if as_json:
        print_json(
            {
                "job_file": text,
                "site": result.scheduler,
                "kept": result.kept or None,
                "refused": [entry._asdict() for entry in result.refused],
                "surprises": result.surprises,
            }
        )
    else:
        _tell(result, shown, text, output, wish)
    return INCOMPLETE if fails or result.refused else 0


def _tell(result: Imported, shown: str, text: str | None, output: Path | None, wish: Wish | None) -> None:
    """Print the job file, or where it is, and report what it cannot express. `shown`: the script's path."""
    for refusal in result.refused:
        report(f"{shown}:{refusal.line or ''}: not expressed: {refusal.text}: {refusal.why}")
    if text is None:
        report(f"{shown}: castoff cannot start its ranks: {result.kept}")
        return
    if output is None:
        click.echo(text, nl=False)
    else:
        file = printable(str(output))
        site = result.scheduler or "NAME"
        click.echo(f"wrote {file}; next: castoff render {visible_word(str(output))} --site {site}")
    for surprise in result.surprises:
        report(f"{shown}: {surprise[0].lower()}{surprise[1:].removesuffix('.')}")
    if result.kept and wish is None:
        report(f"{shown}: kept as a script: {result.kept}")


def _text(script: Path) -> str:
    """The script's text.

    Raises:
        CastoffError: the script cannot be read, or is too long.
    """
    shown = printable(str(script))
    if script.is_dir():
        raise CastoffError(
            f"{shown}: is a folder; name the script in it that you give to sbatch, qsub or flux batch"
        )
    try:
        with script.open("rb") as file:
            data = file.read(_LONGEST + 1)
    except OSError as error:
        raise CastoffError(f"{shown}: cannot be read: {error.strerror}") from error
    if len(data) > _LONGEST:
        raise CastoffError(
            f"{shown}: is longer than {_LONGEST:,} bytes; write a short script that runs this one"
        )
    return data.decode("utf-8", errors="surrogateescape")  # keeps line endings
