"""castoff shell: open a shell, or run a command, in the environment of a rank of a running job."""

from __future__ import annotations

import os
import sys

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_running_runs
from castoff.launcher.cli.output import report
from castoff.launcher.cli.run_options import only_member, selectors_argument


@click.command(
    "shell",
    epilog=examples(
        "castoff shell train", "castoff shell train --rank 2 -- ps xf", "castoff shell train --host n3"
    ),
)
@click.argument("run", shell_complete=complete_running_runs, metavar="RUN")
@selectors_argument("[NAME=VALUE...] [-- COMMAND...]")
@click.option("--rank", type=click.IntRange(min=0), help="In this rank's environment, on its host.")
@click.option("--host", help="On this host of the job; default: the first.")
@click.option(
    "--member", type=click.IntRange(min=0), help="The member of an array; default: the one that is running."
)
def command(
    run: str, selectors: tuple[str, ...], rank: int | None, host: str | None, member: int | None
) -> int:
    """Open a shell beside a rank of a running job, with its environment, or run the command after --.

    RUN is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory. Without
    --rank, the first rank of the host is meant. The shell runs in the rank's container, if there is one, and
    in its folder. The exit code is the command's. MASTER_PORT is the job's: to start ranks in the shell, see
    `castoff launch --here`.
    """
    # Imported late, since a shell that completes options waits for this module.
    from castoff.launcher.interactive.places import place
    from castoff.launcher.interactive.shell import command_line, unreached
    from castoff.launcher.process.attached import run_attached
    from castoff.launcher.runs.index import Index
    from castoff.launcher.schedulers.command import command_environment

    program = click.get_current_context().obj
    if program == []:
        click.get_current_context().fail("name a command after --, or leave -- out for a shell")
    if not program and not sys.stdin.isatty():
        click.get_current_context().fail(
            "a shell needs a terminal, and standard input is not one: "
            f"castoff shell {run} -- COMMAND needs none"
        )
    directory = Index.of(os.environ).find(run)
    if selectors and member is None:
        member = only_member(directory, selectors)
    target = place(directory, member, rank, host)
    environ = command_environment(os.environ)
    argv = command_line(target, program or [], terminal=not program, environ=os.environ)
    code = run_attached(argv, environ).code
    if note := unreached(argv, code):
        report(note)
    return code
