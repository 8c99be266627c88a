"""The verbs as click commands, each loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from castoff.launcher.cli.help import VERBS, help_text, module_of
from castoff.launcher.cli.offers import complete_machines
from castoff.launcher.errors import CastoffError, InvalidInput

_TAKE_A_PROGRAM = ("alloc", "doctor", "launch", "on", "render", "shell", "submit", "train")
"""The verbs that accept words after `--`: a program, or for `train` the trainer's arguments."""


class _Verbs(click.Group):
    """A click group that lists the verbs without their modules, and imports only the one that is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if verb not in VERBS:
            from castoff.launcher.cli.corrections import of_verb_or_file

            ctx.fail(of_verb_or_file(args, ctx.obj))
        if ctx.obj is not None and verb not in _TAKE_A_PROGRAM:
            ctx.fail(f"{verb} takes no program, so nothing may follow --")
        command = import_module(module_of(verb)).command
        if not ctx.resilient_parsing:  # as for completion, which has nothing to clean up
            _hear_interrupts()
        return verb, command, args[1:]

    def get_help(self, ctx: click.Context) -> str:
        return help_text()


@click.command(
    cls=_Verbs,
    commands=[click.Command(verb, short_help=words) for verb, words in VERBS.items()],
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--on",
    metavar="NAME",
    expose_value=False,  # `main` handles it; it is only shown in the help
    shell_complete=complete_machines,
    help="Run the verb on another machine, over SSH (castoff on --help).",
)
@click.version_option(package_name="castoff", prog_name="castoff")
@click.pass_context
def castoff(context: click.Context) -> None:
    """Print the help if no verb is given."""
    if context.invoked_subcommand is None:
        if context.obj is not None:
            context.fail("name a verb first, as in castoff launch -n 2 python train.py")
        click.echo(context.get_help())


def _hear_interrupts() -> None:
    """Turn Ctrl-C into KeyboardInterrupt from now on, so that a verb can clean up."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # castoff.program may have set its own handler
        signal.signal(signal.SIGINT, signal.default_int_handler)


class WrongWords(CastoffError):
    """A command line that cannot be parsed."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def call(words: list[str], program: list[str] | None) -> int:
    """Call the verb that the words name, and return its exit code; `program`: the words after --.

    Raises:
        WrongWords: the verb does not accept the words.
        CastoffError: the verb failed.
    """
    try:
        result: Any = castoff.main(words, prog_name="castoff", obj=program, standalone_mode=False)
    except InvalidInput as error:
        from castoff.launcher.cli.flags import answered, flags_of

        verb = import_module(f"castoff.launcher.cli.{words[0]}").command
        raise answered(error, flags_of(verb)) from error
    except click.ClickException as error:
        from castoff.launcher.cli.corrections import corrected

        raise WrongWords(corrected(error, words, program, castoff), error.exit_code) from error
    except click.Abort:
        return 130
    return result if isinstance(result, int) else 0
