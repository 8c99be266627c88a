"""Texts of a job that refer to the parameters of its array's members, as `{lr}`. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from castoff.launcher.config.parameters import NAME, Table
from castoff.launcher.errors import CastoffError, shown
from castoff.launcher.typed.suggestion import suggestion

if TYPE_CHECKING:
    from castoff.launcher.typed.document import FieldPath  # only here: it imports yaml

_REFERENCE = re.compile(rf"(\$?)(\{{+)({NAME})(\}}+)", re.ASCII)


def replaced(text: str, value_of: Callable[[str], str | None]) -> str:
    """Replace each reference by what `value_of` returns for its name; None leaves it as it is.

    `{lr}` is a reference. An even number of braces stands for half of them, as in Python: `{{lr}}` is the
    text `{lr}`, and `{{{lr}}}` a value in braces. All other braces, and those after a `$`, stay as they are.
    """

    def instead(match: re.Match[str]) -> str:
        dollar, opened, name, closed = match.groups()
        pairs = min(len(opened), len(closed))
        inside = None if dollar else value_of(name) if pairs % 2 else name
        if inside is None:
            return match[0]
        kept = pairs // 2
        return f"{opened[pairs:]}{'{' * kept}{inside}{'}' * kept}{closed[pairs:]}"

    return _REFERENCE.sub(instead, text) if "{" in text else text


def references(text: str) -> list[str]:
    """The names to which a text refers, each once."""
    found: dict[str, None] = {}
    replaced(text, lambda name: found.setdefault(name))
    return list(found)


def without_references(text: str) -> str:
    """A text without its references and what separates them: `train` for `train-{lr}-{seed}`."""
    pieces = replaced(text, lambda _: "\0").split("\0")
    return "-".join(filter(None, (piece.strip("-_.,;:=+@ ") for piece in pieces)))


# --- In a job -----------------------------------------------------------------------------------------


FILE = "CASTOFF_PARAMETERS"
"""The variable that names the file with a member's parameters."""

_IN_SHELL = ("setup", "teardown", "preflight")
"""Fields of shell lines, in which a parameter is a shell variable."""


def texts(spec: Any) -> dict[FieldPath, str]:
    """The texts of a JobSpec in which parameters are replaced, by field."""
    found: dict[FieldPath, str] = {("command", number): word for number, word in enumerate(spec.command)}
    found |= {("env", name): value for name, value in spec.env.items() if value is not None}
    found |= {(name,): text for name in ("workdir", "name") if (text := getattr(spec, name)) is not None}
    return found


def problems(spec: Any, table: Table) -> Iterator[tuple[FieldPath, str]]:
    """The problems of a JobSpec whose array has these parameters: names that do not exist, parameters that
    nothing uses, and references where they are not replaced.
    """
    names, used, passed = table.names, set[str](), False
    for path, text in texts(spec).items():
        for name in references(text):
            used.add(name)
            passed = passed or path != ("name",)
            if name not in names:
                plain = f"for the text {{{name}}}, write {{{{{name}}}}}"
                near = suggestion(name, names)
                yield path, f"holds {{{name}}}, but there is no parameter {name}{near}; {plain}"
    unused = [name for name in names if name not in used]
    shown_to_program = [*spec.command, *spec.setup, *filter(None, spec.env.values())]
    reads_file = any(FILE in text for text in shown_to_program)
    if passed and not reads_file and spec.script is None:  # else the program evidently reads the file
        for name in unused:
            where = "neither command, env, workdir nor name uses it"
            yield (
                ("array", "parameters"),
                f"has {name}, but {where}: write {{{name}}} in one of them, or drop {name}",
            )
    yield from _elsewhere(spec, names)
    yield from _of_program(spec, table)


def of_member(spec: Any, member: int | None) -> Any:
    """A JobSpec for one member of an array with parameters, without the array; any other is unchanged.

    Raises:
        CastoffError: there is no such member, or the job does not use its parameters.
    """
    table = spec.array.table if spec.array else None
    if table is None:
        return spec
    if member is None or member >= table.size:
        which = "" if member is None else f"there is no member {member}: "
        raise CastoffError(
            f"{which}name one of the {table.size} members by --member, 0 to {table.size - 1}; "
            "castoff render --members lists what they run"
        )
    if not any(map(references, texts(spec).values())):
        raise CastoffError("the program reads CASTOFF_PARAMETERS, which only castoff submit writes")
    values = table.values(member)

    def with_values(text: str | None) -> str | None:
        return None if text is None else filled(text, values)

    return spec.changed(
        command=[*map(with_values, spec.command)],
        env={name: with_values(value) for name, value in spec.env.items()},
        workdir=with_values(spec.workdir),
        name=with_values(spec.name),
        array=None,
    )


def _elsewhere(spec: Any, names: list[str]) -> Iterator[tuple[FieldPath, str]]:
    """References in fields in which nothing is replaced."""
    replaced_in = ("command", "env", "workdir", "name", "script", "array")
    fields = [name for name in spec.__struct_fields__ if name not in replaced_in]
    others = {name: msgspec.to_builtins(getattr(spec, name)) for name in fields}
    for path, text in _all_texts(others, ()):
        for name in (name for name in references(text) if name in names):
            fix = "parameters are replaced in command, env, workdir and name only"
            if path[0] in _IN_SHELL:
                fix = f'in shell lines a parameter is a variable: write "${{castoff_parameter[{name}]}}"'
            yield path, f"holds {{{name}}}, which stays as it is here: {fix}"


def _all_texts(data: Any, path: FieldPath) -> Iterator[tuple[FieldPath, str]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _all_texts(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _all_texts(value, (*path, number))
    elif isinstance(data, str):
        yield path, data


def _of_program(spec: Any, table: Table) -> Iterator[tuple[FieldPath, str]]:
    """The first member whose program would have no name, or one that looks like an option."""
    if not spec.command or not references(spec.command[0]):
        return
    for member in range(table.size):
        word = filled(spec.command[0], table.values(member))
        if not word or word.startswith("-"):
            yield ("command", 0), f"is {shown(word)} for member {member}, but must name a program"
            return


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with a member's values."""
    return replaced(text, values.get)
