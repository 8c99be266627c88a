"""What to type instead of a verb or an option of another launcher's command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from launcher.config.document import did_you_mean
from launcher.config.job import JobSpec
from launcher.config.structure import fields_of
from launcher.config.synonyms import OF_JOBS, OPTION_LETTERS, VALUES, VERBS, Instead, array, in_words
from launcher.errors import shown
from launcher.quoting import visible_word, yaml_field


def instead_of_verb(word: str, verbs: Mapping[str, str]) -> str:
    """The end of the message that there is no such verb; `verbs` has what each does, in a sentence."""
    key = word.replace("-", "_").casefold()
    if key not in VERBS:
        return did_you_mean(word, verbs)
    named = [f"castoff {verb} ({verbs[verb][:1].lower()}{verbs[verb][1:-1]})" for verb in VERBS[key].split()]
    return f"; there is {' and '.join(named)}"


def instead_of_option(error: click.UsageError, command: click.Command, words: list[str]) -> str | None:
    """The message about an option that is there under another name, or not; None if click's own serves."""
    if not isinstance(error, click.NoSuchOption):
        if command.name != "launch" or "-np" not in words:
            return None
        return f"there is no option -np; write -n {_value_after('-np', words) or 'N'}"
    option = error.option_name
    flags = [flag for parameter in command.params for flag in parameter.opts]
    found = _of_a_job(option, _value_after(option, words)) if "--set" in flags else None
    if found is None:
        hint = did_you_mean(option, [flag for flag in flags if flag.startswith("--")])
        return f"no such option {shown(option)}{hint}"

    def typed(path: str, value: Any) -> str:
        flag = f"--{path.replace('_', '-')}"
        if flag in flags:
            return flag if value == "…" else f"{flag} {visible_word(str(value))}"
        if value == "…":
            return f"--set {path}=…"
        holder, dot, name = path.rpartition(".")
        return f"--set {visible_word(holder + dot + yaml_field(name, value).replace(': ', '=', 1))}"

    fields = [(path, "…" if value is None else value) for path, value in found.fields]
    return f"there is no option {option}; {in_words(Instead(fields, found.note), typed)}"


def _of_a_job(option: str, value: str | None) -> Instead | None:
    """The field of a job that an option means: by another's word for it, or by its own name."""
    if not option.startswith("--"):
        field = OPTION_LETTERS.get(option.removeprefix("-"))
        if field is None:
            return OF_JOBS.find(option, value)
        meant = VALUES["JobSpec"].find(field, value)
        return meant if meant and meant.fields[0][1] is not None else Instead([(field, value)])
    name = option.removeprefix("--").replace("-", "_")
    if name in _BY_SET:
        return _BY_SET[name](value)
    return Instead([(name, value)]) if name in fields_of(JobSpec) else OF_JOBS.find(option, value)


def _env(value: str | None) -> Instead:
    name, equals, text = (value or "").partition("=")
    return Instead([(f"env.{name}" if equals else "env.NAME", text if equals else None)])


def _items(field: str) -> Callable[[str | None], Instead]:
    return lambda value: Instead([(field, None if value is None else [value])])


_BY_SET: dict[str, Callable[[str | None], Instead]] = {
    "array": array,
    "env": _env,
    "command": lambda value: Instead([], "the program stands after --, as in -- python train.py"),
    "exclusive": lambda value: Instead([("exclusive", True)]),
    **{field: _items(field) for field in ("setup", "env_from", "options")},
}
"""Fields without an option of their own, from what one would give to it."""


def _value_after(option: str, words: list[str]) -> str | None:
    for at, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(words) and not words[at + 1].startswith("-"):
            return words[at + 1]
        if len(option) == 2 and word.startswith(option) and word != option:
            return word[2:]
    return None
