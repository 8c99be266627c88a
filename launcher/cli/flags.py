"""Suggested settings in the form that the user needs: a line of the job file, or a flag.

Messages suggest a field as a line of YAML in backticks (castoff.launcher.typed.suggestion.setting). If the
problem is on the command line, the suggestion becomes the verb's flag, or `--set` for a field without a flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from castoff.launcher.cli.output import meant_duration
from castoff.launcher.config.array_indices import problem as problem_of_indices
from castoff.launcher.config.job import COMMAND_LINE, JobSpec
from castoff.launcher.errors import InvalidInput, Problem
from castoff.launcher.text.quoting import visible_word, yaml_word
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import fields_of

_QSUBS_NAME = "; -N sets the number of nodes, as for sbatch; qsub's -N NAME is -J NAME"
"""A hint for a flag that means something else in other tools, added if the value is not a number."""

_SETTING = re.compile(r"`([a-z_]+: [^`]+)`")


def flags_of(command: click.Command) -> dict[str, str]:
    """The verb's flag for each field of a job that has a flag."""
    return {
        option.name: max(option.opts, key=len)
        for option in command.params
        if isinstance(option, click.Option) and option.name in fields_of(JobSpec)
    }


def answered(error: InvalidInput, flags: Mapping[str, str]) -> InvalidInput:
    """The same error, with suggestions as flags for problems on the command line, and as YAML for those in
    files.
    """
    return InvalidInput([_answered(problem, flags) for problem in error.problems])


def _answered(problem: Problem, flags: Mapping[str, str]) -> Problem:
    where, path, message = problem
    typed = where == COMMAND_LINE or where.startswith("--")

    def instead(setting: re.Match[str]) -> str:
        words = flag_words(setting[1], flags)
        if typed and words:
            return words
        has_flag = words and not words.startswith(("--set ", "-- "))
        return f"{setting[0]} or {words}" if has_flag else setting[0]

    if where.startswith("--set "):
        message = _with_value(message, where.partition("=")[2], flags)
        message += _of_a_section(path, message)
    message += _meant(path, message, is_flag=where == f"--{path}")
    if where == "--command":  # not a flag: the command follows --
        return Problem("the program", "", _SETTING.sub(instead, message))
    if where == COMMAND_LINE and path:
        where = flags.get(path, "")  # a missing field: name the flag that sets it
    return Problem(where, path, _SETTING.sub(instead, message))


def _meant(path: str, message: str, *, is_flag: bool) -> str:
    """The end of the message about a value that other tools take, or that people write."""
    value = re.match("is '?(.*?)'?, but", message)
    if value is None or path not in ("name", "nodes", "walltime", "memory"):
        return ""
    text = value[1]
    if path == "nodes" and is_flag and (span := re.fullmatch(r"\d+-(\d+)", text)):
        return f", not a range; use {span[1]}"
    if path == "nodes" and is_flag and re.search("[A-Za-z]", text):
        return _QSUBS_NAME
    if path == "name" and is_flag and re.match(r"\d+-\d", text):
        return f"; qsub's -J is --array: --array {text}"
    if path == "walltime" and "a duration" in message:
        return _walltime(text)
    return _memory(text) if path == "memory" and "a size" in message else ""


def _walltime(text: str) -> str:
    if re.fullmatch(r"[1-9]\d*", text):
        return f"; sbatch's {text} is {text}m in castoff"
    if clock := re.fullmatch(r"(\d+):(\d\d)", text):
        return f"; sbatch's {text} is {60 * int(clock[1]) + int(clock[2])}s in castoff"
    return meant_duration(text)


def _memory(text: str) -> str:
    size = re.fullmatch(r"(\d+)(\.\d+)? ?([KMGT]?)(?:iB|B)?", text, re.IGNORECASE)
    unit = size[3].upper() if size else ""
    if size and size[2] and unit in ("M", "G", "T"):
        return f"; use {round(float(size[1] + size[2]) * 1024)}{'KMG'['MGT'.index(unit)]}"
    if size and not size[2]:
        return f"; use {size[1]}{unit}" if unit else f"; sbatch's {text} is {text}M in castoff"
    return ""


_SHARED = re.compile(r"(.*; here: )(ranks(?:_per_node)?), with devices_per_rank$")
_LINES = re.compile(r"(.*; here: )setup, as in \[(module load|conda activate) \w+\]$")


def _with_value(message: str, value: str, flags: Mapping[str, str]) -> str:
    """The message about a field that --set does not know, with the value for the field that was meant."""
    if shared := _SHARED.match(message):
        return shared[1] + flag_words(f"{{{shared[2]}: {value}, devices_per_rank: 1}}", flags)
    if lines := _LINES.match(message):
        names = re.findall(r"[^][,\s]+", value)
        return f"{lines[1]}--set 'setup=[{lines[2]} {' '.join(names)}]'"
    if message.endswith("names the machine: --site NAME"):
        return message.replace("; here: the", "; the").replace(
            ": --site NAME", f"; here: --site {visible_word(value)}"
        )
    if not (field := re.search(r"; here: ((?:env\.)?[A-Za-z_.]+)$", message)):
        return message
    if field[1] == "walltime" and value.isdecimal():
        value = f"{value}m"  # as for sbatch
    outer, _, inner = field[1].partition(".")
    line = f"{outer}: {{{inner}: {yaml_word(value)}}}" if inner else f"{outer}: {yaml_word(value)}"
    words = flag_words(line, flags)
    return f"{message[: field.start()]}; here: {words}" if words else message


def _of_a_section(field: str, message: str) -> str:
    """The end of the message about a single value for a section: what sets the field that was meant."""
    value = re.match("is '([^' ]*)', but takes", message)
    if value is None or "; use " in message:
        return ""
    if field == "array" and problem_of_indices(value[1]) is None:
        return f"; use --set array.indices={value[1]}"
    if field == "launcher" and value[1] in ("torchrun", "driver"):
        return f"; use --set launcher.{value[1]}=true"
    if field == "after" and value[1]:
        return f"; use --set {visible_word(f'after.afterok=[{yaml_word(value[1])}]')}"
    return ""


def flag_words(line: str, flags: Mapping[str, str]) -> str:
    """Command-line words with the effect of a line of a job file; empty if the text is not such a line."""
    try:
        document = Document.parse(line, "")
    except InvalidInput:
        return ""
    if not isinstance(document.data, dict) or not document.data.keys() <= fields_of(JobSpec).keys():
        return ""
    return " ".join(_words(path, text, value, flags) for path, text, value in _leaves(document))


def _leaves(document: Document) -> Iterator[tuple[str, str, Any]]:
    """Each field that a document sets: its path, its text as `--set` reads it, and its value."""

    def below(path: tuple[str | int, ...], value: Any) -> Iterator[tuple[str, str, Any]]:
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from below((*path, name), inner)
            return
        name = ".".join(map(str, path))
        if isinstance(value, list):
            words = [document.text((*path, index), item) for index, item in enumerate(value)]
            quoted = [
                yaml_word(word) if isinstance(item, str) else word
                for item, word in zip(value, words, strict=True)
            ]
            yield name, f"[{', '.join(quoted)}]", words
        else:
            yield name, document.text(path, value), value

    yield from below((), document.data)


def _words(path: str, text: str, value: Any, flags: Mapping[str, str]) -> str:
    if path == "command" and isinstance(value, list):
        return " ".join(["--", *map(visible_word, value)])
    if path in flags:
        return f"{flags[path]} {visible_word(text)}"
    if isinstance(value, str) and not _is_plain(text):
        text = yaml_word(text)
    return f"--set {visible_word(f'{path}={text}')}"


def _is_plain(text: str) -> bool:
    """Whether YAML reads an unquoted text as the same string."""
    try:
        return bool(Document.parse(text, "").data == text)
    except InvalidInput:
        return False
