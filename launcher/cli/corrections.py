"""Messages about a command line that cannot be parsed: what was typed, and what to type instead."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import click

from castoff.launcher.cli.help import VERBS, module_of
from castoff.launcher.cli.script_files import INTERPRETERS, JOB_FILES, directives_in
from castoff.launcher.cli.translation import Typed, translated
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.synonyms import hint, instead, of_verb
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.typed.structure import fields_of
from castoff.launcher.typed.suggestion import did_you_mean, suggestion


def corrected(
    error: click.ClickException, words: list[str], program: list[str] | None, top: click.Group
) -> str:
    """The error in one line, with what the user probably meant. `top`: the castoff command."""
    context = getattr(error, "ctx", None)
    if context is None or context.command is top:
        typed = _typed(words, program, top)
    else:
        named = len(context.command_path.split()) - 1
        typed = Typed(context.command, context.command_path, words[named:], program)
    return f"{_for_the_machine(_message(error, typed))} (see {typed.path} --help)"


def _for_the_machine(message: str) -> str:
    """The message with the command lines in it for the machine that `--on` names, if it does."""
    from castoff.launcher.cli.job_options import target

    if (other := target.get()) is None:
        return message
    named = " ".join(other.machine.command())
    return re.sub(r"(?<=: )castoff (?!import|--)", lambda _: f"{named} ", message)


def _typed(words: list[str], program: list[str] | None, top: click.Group) -> Typed:
    """The command that the words name, and the words after its name."""
    if not words or words[0] not in VERBS:
        return Typed(top, "castoff", words, program)
    command: click.Command = import_module(module_of(words[0])).command
    if isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
        return Typed(command.commands[words[1]], f"castoff {words[0]} {words[1]}", words[2:], program)
    return Typed(command, f"castoff {words[0]}", words[1:], program)


def _message(error: click.ClickException, typed: Typed) -> str:
    if isinstance(error, click.NoSuchOption):
        option = _whole(error.option_name, typed)
        if typed.path == "castoff":
            return f"no option {option}{_before_its_verb(typed, option)}"
        return f"no option {option}{translated(typed, option)}"
    if isinstance(error, click.MissingParameter):
        return _of_missing(error, typed)
    if isinstance(error, click.BadParameter):
        return _of_a_value(error, typed)
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.BadOptionUsage):
        return _of_usage(error.option_name, text, typed)
    if match := re.match(r"Got unexpected extra arguments? \((.*)\)", text):
        return _of_more_words(match[1], typed)
    if match := re.match(r"No such command '(.*?)'(?:\.|$)", text):
        return _of_subcommand(match[1], typed)
    return text[:1].lower() + text[1:]


def _whole(option: str, typed: Typed) -> str:
    """The option as it was typed: click reads `-foo` as `-f -o -o`."""
    found = (word.partition("=")[0] for word in typed.words)
    return next(
        (word for word in found if word[1:2] != "-" and len(option) == 2 and _is_long(word, typed)), option
    )


def _is_long(word: str, typed: Typed) -> bool:
    """Whether a word with one hyphen is an option with two."""
    return len(word) > 2 and word[0] == "-" and word[1] != "-" and f"-{word}" in typed.flags


_UNITS = re.compile("(s|sec|second|m|min|minute|h|hr|hour|d|day)s?", re.IGNORECASE)


_DURATIONS = ("-t", "--walltime", "--grace")


def misread(typed: Typed) -> str | None:
    """The message about words that click would read as others: a long option with one hyphen, of which it
    would take all but the first letter for a value, or a duration in two words.
    """
    for word in typed.words:
        option = word.partition("=")[0]
        if _is_long(option, typed):
            return f"no option {option}; did you mean -{option}?"
        if re.fullmatch("-[A-Za-z]{2}[A-Za-z_-]*", option) and _is_known(option, typed):
            return f"no option {option}{translated(typed, option)}"
    for option, number, unit in zip(typed.words, typed.words[1:], typed.words[2:], strict=False):
        if option in _DURATIONS and number.isdecimal() and _UNITS.fullmatch(unit):
            return f"{option} takes one word; here: {option} {number}{unit[0].lower()}"
    return None


def _is_known(option: str, typed: Typed) -> bool:
    """Whether an option with one hyphen is a term of other launchers."""
    name = option.lstrip("-")
    return typed.takes_a_job and (name in fields_of(JobSpec) or instead("JobSpec", name) is not None)


def _before_its_verb(typed: Typed, option: str) -> str:
    """The end of the message about an option before the verb: the command line with the option after it."""
    position = next((index for index, word in enumerate(typed.words) if word in VERBS), None)
    if position is None:
        return translated(typed, option) or "; castoff's own are --on, --version and --help"
    words = [*typed.words[position : position + 1], *typed.words[:position], *typed.words[position + 1 :]]
    assert isinstance(typed.command, click.Group)
    inner = _typed(words, typed.program, typed.command)
    if option not in inner.flags:
        return translated(inner, option)
    return f" before a verb; here: {typed.line(words)}"


def _of_missing(error: click.MissingParameter, typed: Typed) -> str:
    parameter, context = error.param, error.ctx
    assert parameter is not None
    assert context is not None
    needed = [
        each for each in typed.command.params if each.required and context.params.get(each.name or "") is None
    ]
    words = [_spelled(each) for each in needed or [parameter]]
    names = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    verb = "is" if len(words) == 1 else "are"
    if isinstance(parameter.type, click.Choice):
        return f"{names} {verb} missing: one of {', '.join(parameter.type.choices)}"
    if words == ["RUN"]:
        return "RUN is missing; `castoff list` shows your runs"
    return f"{names} {verb} missing, as in {' '.join([typed.line(typed.words), *words])}"


def _spelled(parameter: click.Parameter) -> str:
    """A parameter as a help shows it: `RUN`, or `--dir FOLDER`."""
    kind = _metavar(parameter)
    return kind if isinstance(parameter, click.Argument) else f"{max(parameter.opts, key=len)} {kind}"


_METAVARS = {"INTEGER": "N", "INTEGER RANGE": "N", "TEXT": "NAME", "PATH": "FILE"}


def _metavar(parameter: click.Parameter) -> str:
    """What stands for a parameter's value; click's own function for it takes other arguments since 8.2."""
    if parameter.metavar:
        kind = parameter.metavar.partition(" [-- ")[0]
    elif isinstance(parameter, click.Argument):
        kind = f"{parameter.name}".upper() + ("..." if parameter.nargs != 1 else "")
    else:
        kind = parameter.type.name.upper()
    return "NAME" if "|" in kind or kind == "CHOICE" else _METAVARS.get(kind, kind)


def _of_usage(option: str, text: str, typed: Typed) -> str:
    """The message about an option without a value that it needs, or with one that it does not take."""
    if "not take a value" in text:
        words = [word.partition("=")[0] if word.startswith(f"{option}=") else word for word in typed.words]
        return f"{option} takes no value; here: {typed.line(words)}"
    parameter = next((each for each in typed.command.params if option in each.opts), None)
    kind = _metavar(parameter) if parameter else "VALUE"
    return f"{option} needs a value: {option} {kind}"


def _of_a_value(error: click.BadParameter, typed: Typed) -> str:
    """The message about an invalid value: as castoff's own checks word it, or the type's."""
    text, parameter = error.message, error.param
    if parameter is None or error.ctx is None:
        return text
    typed_as = [flag for flag in parameter.opts if any(_is_of(word, flag) for word in typed.words)]
    name = typed_as[0] if typed_as else _spelled(parameter).partition(" ")[0]
    if text.startswith("is "):
        return f"{name}: {text}"
    shown = text.partition(" is not ")[0]
    value = re.sub("^'(.*)'$", r"\1", shown)
    kind = parameter.type
    if isinstance(kind, click.Choice):
        near = did_you_mean(value, kind.choices)
        return f"{name}: is {shown}, but takes one of {', '.join(kind.choices)}{near}"
    if isinstance(kind, click.IntRange):
        least, most = kind.min, kind.max
        bounds = f"from {least} to {most}" if most is not None else f"of {least} or more"
        return f"{name}: is {shown}, but takes a whole number {bounds}"
    return f"{name}: {text}"


def _is_of(word: str, flag: str) -> bool:
    return word == flag or word.startswith(f"{flag}=") or (len(flag) == 2 and word.startswith(flag))


_TAKE_A_PROGRAM = ("submit", "render", "alloc", "launch", "shell")


def _of_more_words(extra: str, typed: Typed) -> str:
    """The message about extra words, with what they probably are: a field, a program, a job file, a name."""
    words, verb = typed.words, typed.verb
    start = next((start for start in range(len(words)) if " ".join(words[start:]) == extra), None)
    if start is None:
        start = next((number for number, word in enumerate(words) if word == extra.split(" ")[0]), len(words))
    kept, more = words[:start], words[start:]
    message = f"{verb} takes no word {extra!r}"
    if more and (meant := _of_set(typed, kept, more)):
        return f"{message}{meant}"
    if verb in _TAKE_A_PROGRAM and typed.program is None and more:
        return f"{message}{_of_a_job(typed, kept, more)}"
    if verb == "list" and more:
        return f"{message}; here: {_listed(typed, kept, more)}"
    if verb == "usage" and more:
        return f"{message}; here: {typed.line([*kept, '--name', more[0], *more[1:]])}"
    return f"{message}; here: {typed.line(kept)}"


def _of_set(typed: Typed, kept: list[str], more: list[str]) -> str:
    """The end of the message about extra words that belong to --set; empty if there are none."""
    if kept[-3:-2] == ["--set"] and kept[-1] == "=":  # --set nodes = 2
        return f"; here: {typed.line([*kept[:-2], f'{kept[-2]}={more[0]}', *more[1:]])}"
    if kept[-3:-2] == ["--set"] and "=" in kept[-2] and not kept[-1].endswith(JOB_FILES):
        end = next((number for number, word in enumerate(more) if word[:1] == "-"), len(more))
        whole = " ".join([*kept[-2:], *more[:end]])
        return f"; a value with blanks is quoted; here: {typed.line([*kept[:-2], whole, *more[end:]])}"
    if kept[-2:-1] == ["--set"] and "=" not in kept[-1]:
        return f"; here: {typed.line([*kept[:-1], f'{kept[-1]}={more[0]}', *more[1:]])}"
    return ""


def _of_a_job(typed: Typed, kept: list[str], more: list[str]) -> str:
    name, equals, value = more[0].partition("=")
    if equals and typed.takes_a_job:
        field = name.partition(".")[0]
        if field not in fields_of(JobSpec):
            meant = instead("JobSpec", name)
            is_field = meant and meant.partition(".")[0] in fields_of(JobSpec)
            name = meant if meant and is_field else f"env.{name}" if name.isupper() else name
        return f"; a field is set by --set {visible_word(f'{name}={value}')}"
    if more[0].endswith(JOB_FILES):
        return f"; one job file at a time; here: {typed.line(kept)}"
    return f"; a program follows --; here: {typed.line(kept, more)}"


def _listed(typed: Typed, kept: list[str], more: list[str]) -> str:
    """The command that lists what words after `castoff list` name: a state, a job, or runs by their name."""
    states = next(each.type for each in typed.command.params if each.name == "states")
    if isinstance(states, click.Choice) and more[0] in states.choices:
        return typed.line([*kept, "--state", more[0], *more[1:]])
    if more[0].isdecimal():
        return f"castoff status {more[0]}"
    return typed.line([*kept, "--name", more[0], *more[1:]])


def _of_subcommand(word: str, typed: Typed) -> str:
    """The message about a word that is none of a verb's own commands."""
    assert isinstance(typed.command, click.Group)
    verb, rest = typed.verb, typed.words[1:]
    message = f"{verb} has no command {word!r}"
    if verb == "on" and rest and rest[0] in VERBS:
        return f"{message}; here: castoff --{verb} {' '.join(map(visible_word, typed.words))}"
    if template := of_verb(verb, word.replace("-", "_")):
        line = template.replace(" REST", "").replace("VALUE", "")
        return f"{message}; here: {' '.join([line.strip(), *map(visible_word, rest)])}"
    known = [name for name, command in typed.command.commands.items() if not command.hidden]
    return f"{message}{suggestion(word, known)}"


_EITHER = "castoff launch, here and now, or castoff submit"
"""The row for `run` and `start`."""


def of_verb_or_file(args: list[str], program: list[str] | None) -> str:
    """The message about a word that is no verb: the verb, or the command line for a file, that was meant."""
    verb, top = args[0], Typed(click.Command("castoff"), "castoff", args, program)
    meant = instead("verb", verb)
    if meant == _EITHER:
        is_file = any(word.endswith(JOB_FILES) for word in args[1:])
        meant = "submit" if is_file or program is not None else "launch"
    here = top.line([meant, *args[1:]]) if meant in VERBS else _for_file(top)
    return f"there is no verb {verb!r}{f'; here: {here}' if here else hint('verb', verb, list(VERBS))}"


def _for_file(typed: Typed) -> str:
    """If a file stands where a verb belongs, the command line that the user probably meant; else empty."""
    file = typed.words[0]
    if not Path(file).is_file():
        return ""
    if Path(file).suffix in JOB_FILES:
        return typed.line(["submit", *typed.words])
    if directives_in(file):
        return typed.line(["import", file])
    starts = INTERPRETERS.get(Path(file).suffix)
    return typed.line(["launch"], [starts, *typed.words]) if starts else ""
