"""The `castoff` command: parse, call, print. Each verb is a module of launcher.commands.

Nothing but click is imported until a verb runs, and what stands after `--` never meets the parser.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from launcher.errors import CastoffError

_VERBS = {
    "cancel": "End a run.",
    "explain": "Say which rank this process is, and how that is known.",
    "init": "Write a commented job file to start from.",
    "launch": "Start ranks here and now.",
    "logs": "Print a run's logs.",
    "render": "Print the script that a scheduler gets.",
    "schema": "Print the JSON schema of job files.",
    "sites": "List the sites, or show one.",
    "status": "Say what became of a run, or of all.",
    "submit": "Submit a job.",
    "wait": "Wait until a run is over; exit with its code.",
}


class _Verbs(click.Group):
    """Loads a verb's module when it is called, and lists the verbs without loading any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = import_module(f"launcher.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_VERBS.items()))


@click.command(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="castoff", prog_name="castoff")
def castoff() -> None:
    """From one job file to ranks that know who they are.

    castoff renders the exact script that Slurm or PBS gets, submits it, starts the ranks, tells
    each who it is, and knows afterwards how it ended. What stands after -- is the program with its
    own flags.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    program: list[str] | None = None
    if "--" in words:
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    sys.exit(_run(words, program))


def _run(words: list[str], program: list[str] | None) -> int:
    try:
        result: Any = castoff.main(words, prog_name="castoff", obj=program, standalone_mode=False)
    except CastoffError as error:
        for line in str(error).splitlines():
            click.echo(f"castoff: {line}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except BrokenPipeError:  # the reader has gone, as in `castoff render … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return result if isinstance(result, int) else 0
