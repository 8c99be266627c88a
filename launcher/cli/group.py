"""The verbs as click has them: found by name, loaded when called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from launcher.cli.help import VERBS, help_text, module_of
from launcher.errors import CastoffError

_TAKE_A_PROGRAM = ("alloc", "doctor", "launch", "render", "shell", "submit", "train")
"""The verbs for which what follows `--` is the program's, or for train the trainer's."""


class _Verbs(click.Group):
    """Lists the verbs without their modules, and loads the one that is called."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if verb not in VERBS:
            from launcher.config.synonyms import hint

            ctx.fail(f"there is no verb {verb!r}{hint('verb', verb, list(VERBS))}")
        if ctx.obj is not None and verb not in _TAKE_A_PROGRAM:
            ctx.fail(f"{verb} takes no program, so nothing may follow --")
        return verb, import_module(module_of(verb)).command, args[1:]

    def get_help(self, ctx: click.Context) -> str:
        return help_text()


@click.command(
    cls=_Verbs,
    commands=[click.Command(verb, short_help=words) for verb, words in VERBS.items()],
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="castoff", prog_name="castoff")
@click.pass_context
def castoff(context: click.Context) -> None:
    """See `help_text`."""
    if context.invoked_subcommand is None:
        if context.obj is not None:
            context.fail("name a verb before --, as in castoff launch -n 2 -- python train.py")
        click.echo(context.get_help())


class WrongWords(CastoffError):
    """A command line that cannot be parsed."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def call(words: list[str], program: list[str] | None) -> int:
    """Call the verb that the words name, and return its exit code; `program`: what stands after --.

    Raises:
        WrongWords: they are not what the verb takes.
        CastoffError: what the verb says is wrong.
    """
    try:
        result: Any = castoff.main(words, prog_name="castoff", obj=program, standalone_mode=False)
    except click.ClickException as error:
        raise WrongWords(_in_one_line(error), error.exit_code) from error
    except click.Abort:
        return 130
    return result if isinstance(result, int) else 0


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
    from launcher.config.job import JobSpec
    from launcher.config.synonyms import instead
    from launcher.typed.structure import fields_of
    from launcher.typed.suggestion import did_you_mean

    flags = [flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")]
    name = option.lstrip("-").replace("-", "_")
    meant = name if name in fields_of(JobSpec) else instead("JobSpec", name)
    if meant is None or "--set" not in flags:
        return did_you_mean(option, flags)
    if meant.partition(".")[0] not in fields_of(JobSpec):
        return f"; here: {meant}"
    flag = f"--{meant.replace('_', '-')}"
    return f"; here: {flag if flag in flags else f'--set {meant}=…'}"
