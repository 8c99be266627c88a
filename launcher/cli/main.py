"""The `castoff` command: parse, call, print. Each verb is a module of launcher.cli.

Nothing but click is imported until a verb runs, and what follows `--` never reaches the parser.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from launcher.errors import CastoffError, Problem, say

_VERBS = {
    "cancel": "End runs.",
    "clean": "Remove the directories of runs that are over.",
    "completion": "Print the completion script for a shell.",
    "doctor": "Show who else could change what will run.",
    "explain": "Show this process's rank, and how it is known.",
    "init": "Write a commented job file to start from.",
    "launch": "Start ranks here and now.",
    "list": "List your runs.",
    "logs": "Print a run's logs, or follow them.",
    "render": "Print the script that a scheduler gets.",
    "resubmit": "Restart a run that is over, in its directory.",
    "schema": "Print the JSON schema of job files.",
    "sites": "List the sites, show one, or check one.",
    "status": "Show the state of a run.",
    "stop": "Ask runs to save their state and end.",
    "submit": "Submit a job.",
    "train": "Train a network that comes with castoff.",
    "trust": "Trust those who can write to a folder, or list those folders.",
    "wait": "Wait until runs are over; exit with their code.",
}

_TAKE_A_PROGRAM = ("doctor", "launch", "render", "submit", "train")
"""The verbs for which what follows `--` is the program's, or for train the trainer's."""


class _Verbs(click.Group):
    """Lists the verbs without their modules, and loads the one that is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if verb not in _VERBS:
            from launcher.config.synonyms import hint

            ctx.fail(f"no verb {verb!r}{hint('verb', verb, list(_VERBS))}")
        if ctx.obj is not None and verb not in _TAKE_A_PROGRAM:
            ctx.fail(f"{verb} takes no program, so nothing may follow --")
        return verb, import_module(f"launcher.cli.{verb}").command, args[1:]


@click.command(
    cls=_Verbs,
    commands=[click.Command(verb, short_help=words) for verb, words in _VERBS.items()],
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="castoff", prog_name="castoff")
@click.pass_context
def castoff(context: click.Context) -> None:
    """From one job file to running ranks.

    castoff renders the exact script that Slurm or PBS gets, submits it, starts the ranks, sets RANK,
    WORLD_SIZE and the like in each, and shows afterwards how it ended. What follows -- is the program
    with its own flags.
    """
    if context.invoked_subcommand is None:
        if context.obj is not None:
            context.fail("name a verb before --, as in castoff launch -n 2 -- python train.py")
        click.echo(context.get_help())


def console() -> NoReturn:
    """The installed command: `main` for a process of its own, which may skip what such a one can.

    Collecting garbage and taking the interpreter apart cost a short command a fifth of its time.
    """
    gc.set_threshold(100_000)
    try:
        main()
    except SystemExit as end:
        if sys.stderr is not None:
            sys.stderr.flush()
        os._exit(end.code & 0xFF if isinstance(end.code, int) else 1)  # as the system does with any other


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else arguments
    program: list[str] | None = None
    if "--" in words:
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    if "_CASTOFF_COMPLETE" in os.environ:  # a shell asks what may stand next, and click answers
        import_module("launcher.cli.completion")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path's bytes leave as they came
    try:
        code = _run(words, program)
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # the reader has gone, as in `castoff render … | head`
            _complain(f"{error.filename or 'standard output'}: {error.strerror or error}", 1, words)
        if sys.stdout is not None:
            # What is still buffered goes nowhere: the interpreter's last flush succeeds.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(words: list[str], program: list[str] | None) -> int:
    try:
        result: Any = castoff.main(words, prog_name="castoff", obj=program, standalone_mode=False)
    except CastoffError as error:
        return _complain(str(error), error.exit_code, words, getattr(error, "problems", []))
    except click.ClickException as error:
        return _complain(_in_one_line(error), error.exit_code, words)
    except click.Abort:
        return 130
    return result if isinstance(result, int) else 0


def _complain(message: str, code: int, words: list[str], problems: list[Problem] | None = None) -> int:
    """Say what is wrong on standard error, and return the exit code; with --json, as one JSON object.

    Whether --json is meant is seen from the words alone, for they may be what is wrong.
    """
    if "--json" not in words:
        for line in message.split("\n"):
            say(line)
        return code
    import json

    report: dict[str, Any] = {"error": message, "exit_code": code}
    if problems:
        report["problems"] = [
            {"where": one.where, "field": one.path, "message": one.message} for one in problems
        ]
    click.echo(json.dumps(report), err=True)
    return code


def _in_one_line(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    path = context.command_path
    if isinstance(error, click.NoSuchOption):
        message = f"no option {error.option_name}{_instead(error.option_name, context.command)}"
    if "unexpected extra argument" in message and context.command.name in _TAKE_A_PROGRAM:
        message += f"; a program follows --, as in {path} -- python train.py"
    return f"{message[:1].lower()}{message[1:]} (see {path} --help)"


def _instead(option: str, command: click.Command) -> str:
    """The end of the message that a verb has no such option."""
    from launcher.config.document import did_you_mean
    from launcher.config.job import JobSpec
    from launcher.config.structure import fields_of
    from launcher.config.synonyms import instead

    flags = [flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")]
    name = option.lstrip("-").replace("-", "_")
    meant = name if name in fields_of(JobSpec) else instead("JobSpec", name)
    if meant is None or "--set" not in flags:
        return did_you_mean(option, flags)
    if meant.partition(".")[0] not in fields_of(JobSpec):
        return f"; here: {meant}"
    flag = f"--{meant.replace('_', '-')}"
    return f"; here: {flag if flag in flags else f'--set {meant}=…'}"


if __name__ == "__main__":
    console()
