"""The verbs as click commands, each loaded when it is called."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, get_origin

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
            from castoff.launcher.config.synonyms import hint, instead

            meant = instead("verb", verb)
            here = (
                _typed(["castoff", meant, *args[1:]], ctx.obj) if meant in VERBS else _for_file(args, ctx.obj)
            )
            ctx.fail(
                f"there is no verb {verb!r}{f'; here: {here}' if here else hint('verb', verb, list(VERBS))}"
            )
        if ctx.obj is not None and verb not in _TAKE_A_PROGRAM:
            ctx.fail(f"{verb} takes no program, so nothing may follow --")
        command = import_module(module_of(verb)).command
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
        raise WrongWords(_in_one_line(error, words), error.exit_code) from error
    except click.Abort:
        return 130
    return result if isinstance(result, int) else 0


def _in_one_line(error: click.ClickException, words: list[str]) -> str:
    message = " ".join(error.format_message().split()).rstrip(".")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    if context is None:  # an option has no value
        verb = words[0] if words[0] in VERBS else ""
        return f"{message} (see {' '.join(filter(None, ['castoff', verb, '--help']))})"
    path = context.command_path
    if isinstance(error, click.UsageError) and (meant := _two_hyphens(words, context.command)):
        message = meant
    elif isinstance(error, click.NoSuchOption) and context.command is castoff:
        message = f"no option {error.option_name}{_behind_its_verb(words)}"
    elif isinstance(error, click.NoSuchOption):
        value = _value(error.option_name, words)
        message = f"no option {error.option_name}{_instead(error.option_name, value, context.command)}"
    elif isinstance(error, click.BadParameter):
        message = _of_a_value(message, words)
    if "unexpected extra argument" in message and context.command.name in _TAKE_A_PROGRAM:
        fields = [word for word in words if "=" in word and f"{word}" in message and word[:1] != "-"]
        message += f"; a field is set by --set {fields[0]}" if fields else _of_more_words(message, words)
    message = message.replace(" [-- COMMAND...]'", "'")
    if isinstance(error, click.MissingParameter) and "'RUN'" in message:
        message += "; `castoff list` shows your runs"
    return f"{message} (see {path} --help)"


def _for_file(args: list[str], program: list[str] | None) -> str:
    """If a file stands where a verb belongs, the command line that the user probably meant; else empty."""
    from pathlib import Path

    from castoff.launcher.cli.program import INTERPRETERS, JOB_FILES, directives_in

    file = args[0]
    if not Path(file).is_file():
        return ""
    if Path(file).suffix in JOB_FILES:
        return _typed(["castoff", "submit", *args], program)
    if directives_in(file):
        return _typed(["castoff", "import", file], None)
    starts = INTERPRETERS.get(Path(file).suffix)
    return _typed(["castoff", "launch", "--", starts, *args], program) if starts else ""


def _behind_its_verb(words: list[str]) -> str:
    """The end of the message about an option before the verb: the command line with the option after it."""
    position = next((index for index, word in enumerate(words) if word in VERBS), None)
    if position is None:
        return ""
    meant = _typed(["castoff", words[position], *words[:position], *words[position + 1 :]], None)
    return f" before a verb; here: {meant}"


def _two_hyphens(words: list[str], command: click.Command) -> str:
    """The message that a long option takes two hyphens, not one; empty if that is not the problem."""
    flags = {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
    for word in words:
        name = word.partition("=")[0]
        if len(name) > 2 and name[1] != "-" and f"-{name}" in flags:
            return f"no option {name}; did you mean -{name}?"
    return ""


def _of_more_words(message: str, words: list[str]) -> str:
    """The end of the message about extra words: most likely they are a program, which follows --."""
    from castoff.launcher.cli.program import JOB_FILES

    extra = message.partition("(")[2].rpartition(")")[0]
    start = next((start for start in range(len(words)) if " ".join(words[start:]) == extra), len(words))
    if start > 1 and words[start - 2] == "--set" and "=" not in words[start - 1]:
        return f"; a field is set by --set {_typed([f'{words[start - 1]}={words[start]}'], None)}"
    if start == len(words):
        return "; a program follows --"
    if words[start].endswith(JOB_FILES):
        return "; one job file at a time; a program follows --"
    return f"; a program follows --: {_typed(['castoff', *words[:start]], words[start:])}"


def _of_a_value(message: str, words: list[str]) -> str:
    """The message about an option's invalid value, in castoff's wording."""
    if "-np" in words:  # click reads it as -n with the value p
        return f"no option -np; here: -n {_value('-np', words)}"
    if match := re.search(r"'(\S+)' is not one of (.*)", message):
        from castoff.launcher.typed.suggestion import did_you_mean

        return message + did_you_mean(match[1], re.findall(r"'(\S+?)'", match[2]))
    return message.replace("is not a valid integer range", "is not a whole number")


def _typed(words: list[str], program: list[str] | None) -> str:
    """A command line to show to the user, quoted for a shell."""
    from castoff.launcher.text.quoting import visible_word

    return " ".join(map(visible_word, [*words, *([] if program is None else ["--", *program])]))


def _value(option: str, words: list[str]) -> str:
    """The option's value among the words; … if it has none."""
    from castoff.launcher.text.quoting import visible_word

    for word, after in zip(words, [*words[1:], "-"], strict=True):
        if word == option and not after.startswith("-"):
            return visible_word(after)
        if word.startswith(f"{option}="):
            return visible_word(word.partition("=")[2])
    return "…"


def _instead(option: str, value: str, command: click.Command) -> str:
    """The end of the message about an unknown option: the option or field that the user probably meant."""
    from castoff.launcher.cli.flags import flags_of
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.synonyms import instead
    from castoff.launcher.typed.structure import bare, fields_of
    from castoff.launcher.typed.suggestion import did_you_mean

    if option == "--on":  # an option of castoff itself, before every verb
        return f" behind a verb; here: castoff --on {value} {command.name}"
    field_flags = flags_of(command)
    flags = [flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")]
    if option in ("-o", "--output") and command.name == "init":
        return f"; here: castoff init {value}"
    if option == "--all" and "--name" in flags and "--set" not in flags:
        return "; here: --name '*'"
    name = option.lstrip("-").replace("-", "_")
    resource, equals, amount = value.partition("=")
    is_field = bool(instead("JobSpec", resource)) or resource in fields_of(JobSpec)
    if option == "-l" and equals and is_field and resource != "select":  # select sets several fields
        return _instead(f"--{resource}", amount, command)
    meant = name if name in fields_of(JobSpec) else instead("JobSpec", name)
    if meant is None or "--set" not in flags:
        return did_you_mean(option, flags)
    if meant.partition(".")[0] not in fields_of(JobSpec):
        if meant.partition(",")[0] in field_flags:  # several fields
            meant = re.sub(r"\w+", lambda word: field_flags.get(word[0], word[0]), meant)
        return f"; here: {meant}"
    if meant == "array":  # the value is written as for sbatch: INDICES%MAX_CONCURRENT
        indices, _, at_once = value.partition("%")
        more = f" --set array.max_concurrent={at_once}" if at_once else ""
        return f"; here: --set array.indices={indices}{more}"
    if get_origin(bare(fields_of(JobSpec)[meant.partition(".")[0]].type)) in (dict, list):
        value = "…"  # a single word cannot be a mapping or a list
    if value == "…" and bare(fields_of(JobSpec)[meant.partition(".")[0]].type) in (bool, bool | None):
        value = "true"
    flag = f"--{meant.replace('_', '-')}"
    return f"; here: {f'{flag} {value}' if flag in flags else f'--set {meant}={value}'}"
