"""castoff import: a job file from a script for sbatch, qsub or flux batch."""

from __future__ import annotations

import os
from pathlib import Path

import click

from launcher.cli.help import examples
from launcher.cli.output import report, several
from launcher.errors import CastoffError, printable
from launcher.quoting import visible_word

INCOMPLETE = 3
"""The exit code where some line of the script is not expressed in the job file."""

_LONGEST = 4 << 20
"""Bytes of a script: what Slurm takes (slurm.conf(5), max_script_size)."""


@click.command(
    "import", epilog=examples("castoff import train.sbatch", "castoff import train.sbatch -o job.yaml")
)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the job file here, not over one that is there; - prints it.",
)
def command(script: Path, output: Path | None) -> int:
    """Write a job file for SCRIPT, which is read and never run.

    The job file's comments, and standard error, list each line that it cannot express, and why. The exit code
    is then 3.
    """
    from launcher.importing.script import NotAScript, read_script  # late: completion waits for imports
    from launcher.importing.writing import job_file
    from launcher.runs.records import write_file

    shown = printable(str(script))
    if output == Path("-"):
        output = None
    if output is not None and os.path.lexists(output):
        raise CastoffError(f"{printable(str(output))}: is there already; name another file, or remove it")
    try:
        result = read_script(_text(script))
    except NotAScript as error:
        error.args = (f"{shown}: {str(error).replace(' FILE ', f' {visible_word(str(script))} ')}",)
        raise
    site = result.scheduler or "NAME"
    text = job_file(result, script.name, site)
    if output is None:
        click.echo(text.encode(errors="surrogateescape"), nl=False)
    else:
        try:
            write_file(output, text, 0o644)
        except OSError as error:
            raise CastoffError(f"{printable(str(output))}: cannot be written: {error.strerror}") from error
        click.echo(
            f"wrote {printable(str(output))}; next: castoff render {visible_word(str(output))} --site {site}"
        )
    left = result.account.of("not expressed")
    for one in left:
        what = f"{one.text}: " if one.text else ""
        report(f"{shown}:{one.first}: not expressed: {what}{one.why}")
    if left:
        are = "is" if len(left) == 1 else "are"
        report(f"{several(len(left), 'thing')} {are} not expressed; the job file's comments list all")
    return INCOMPLETE if left else 0


def _text(script: Path) -> str:
    """The script's text.

    Raises:
        CastoffError: it cannot be read.
    """
    shown = printable(str(script))
    if script.is_dir():
        raise CastoffError(
            f"{shown}: is a folder; name the script in it that you give to sbatch, qsub or flux batch"
        )
    try:
        with script.open("rb") as file:
            found = file.read(_LONGEST + 1)
    except OSError as error:
        raise CastoffError(f"{shown}: cannot be read: {error.strerror}") from error
    if len(found) > _LONGEST:
        raise CastoffError(
            f"{shown}: is longer than {_LONGEST >> 20} MiB, which is no script for a scheduler"
        )
    return found.decode("utf-8", errors="surrogateescape")  # line ends as they are
