"""How a script gets the parameters of its array's members, and what of them it cannot express. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.config.parameter_files import BY_BASH
from castoff.launcher.config.parameters import Table, is_boolean, json_scalar
from castoff.launcher.config.program_name import program_name
from castoff.launcher.config.references import filled, references, replaced, texts, without_references
from castoff.launcher.config.workdir import for_cd
from castoff.launcher.errors import shown
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.runs.plan import Plan
from castoff.launcher.text.quoting import parameter_mark

_SHELL = re.compile(r"(?:.*/)?(?:ba|da|k|z)?sh")
_DOUBLED = re.compile(r"""(?<![fF]['"])\{\{ *"[^"{}]+" *:""")
"""JSON in doubled braces, as `str.format` needs it; a program's own f-string may need them."""

_READS_NEXT = re.compile("-[a-z]*c")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""Values that a shell reads as one word, as they are."""

_LARGEST = 3_500_000
"""Limit of a table in a script, in bytes: Slurm takes scripts of 4 MiB unless max_script_size says otherwise
(SchedulerParameters in slurm.conf(5)).
"""


def run_name(spec: JobSpec) -> str:
    """The name of a job's run, which its members share: its `name` without parameters, or its program's."""
    if member_name(spec) is None:
        return spec.name or program_name(spec.command)
    return without_references(spec.name or "") or program_name([*map(without_references, spec.command)])


def member_name(spec: JobSpec) -> str | None:
    """A job's name if it refers to parameters, so that each member has its own."""
    has_parameters = spec.array is not None and spec.array.parameters is not None
    return spec.name if has_parameters and references(spec.name or "") else None


def of_members(spec: JobSpec) -> dict[str, Any]:
    """The fields of a plan that depend on the members' parameters."""
    table = spec.array.table if spec.array else None
    return {"parameters": table, "member_name": member_name(spec), "workdir": for_cd(_workdir(spec, table))}


def _workdir(spec: JobSpec, table: Table | None) -> str | None:
    """The folder of the ranks; one that begins with a parameter may be absolute for all members."""
    if spec.workdir is None or table is None or not spec.workdir.startswith("{"):
        return spec.workdir
    first = filled(spec.workdir, table.values(0))
    # A / more changes no path, and shows `for_cd` that this one is absolute.
    return f"/{spec.workdir}" if first.startswith("/") else spec.workdir


def problems(spec: JobSpec, launcher: LauncherName) -> Iterator[tuple[str, str]]:
    """Yield what a script cannot express of an array's parameters."""
    table = spec.array.table if spec.array else None
    if table is None:
        return
    size = sum(len(row.encode()) + 1 for row in script_rows(table))
    if size > _LARGEST:
        most = f"makes a table of {size:,} bytes, and a script can hold {_LARGEST:,}"
        fix = "set array.count instead, and have the program read its row of a file, by CASTOFF_ARRAY_INDEX"
        yield "array.parameters", f"{most}: {fix}; or submit several arrays"
    if not LAUNCHERS[launcher].here and not spec.launcher.driver:
        yield from _read_by_launchers(spec, table, launcher)
    yield from _of_workdir(spec, table)


def _read_by_launchers(spec: JobSpec, table: Table, launcher: LauncherName) -> Iterator[tuple[str, str]]:
    """Words that a launcher would not pass on: `:` separates programs, and Flux replaces `{{…}}`."""
    for number, word in enumerate(spec.command):
        names = references(word)
        if not any(":" in value or "{" in value for name in names for value in table.values_of(name)):
            continue
        for member in range(table.size):
            text = filled(word, table.values(member))
            if text == ":" or (LAUNCHERS[launcher].fills_in and "{{" in text):
                why = f"is {shown(text)} for member {member}, which {launcher} would read itself"
                yield (
                    f"command.{number}",
                    f"{why}: pass it in env, or have the program read CASTOFF_PARAMETERS",
                )
                break


def _of_workdir(spec: JobSpec, table: Table) -> Iterator[tuple[str, str]]:
    if spec.workdir is None or not spec.workdir.startswith("{"):
        return
    kinds: dict[str, int] = {}
    for member in range(table.size):
        folder = filled(spec.workdir, table.values(member))
        kind = "empty" if not folder else "in a home folder" if folder[0] == "~" else ""
        kinds.setdefault(kind or ("absolute" if folder[0] == "/" else "relative"), member)
    if bad := kinds.keys() & {"empty", "in a home folder"}:
        kind = min(bad)
        yield "workdir", f"is {kind} for member {kinds[kind]}: write an absolute path, or one from here"
    elif len(kinds) > 1:
        both = ", and ".join(f"{kind} for member {member}" for kind, member in kinds.items())
        yield "workdir", f"is {both}: let all members' be absolute, or all relative"


def notes(spec: JobSpec) -> Iterator[str]:
    """Yield what a submitter may not expect of an array's parameters."""
    table = spec.array.table if spec.array else None
    if table is None:
        return
    found = texts(spec)
    if not any(map(references, found.values())):
        names = " or ".join(f"{{{name}}}" for name in table.names)
        yield f"the job does not use {names}: its program gets them in the file CASTOFF_PARAMETERS"
    for name in table.names:
        if any(f"${{{name}}}" in text for text in found.values()):
            yield f"${{{name}}} stays as it is: write {{{name}}}, without $, for the parameter"
    if any(map(_DOUBLED.search, found.values())):
        yield 'the braces of {{"…": …}} stay doubled, as only {{NAME}} stands for {NAME}: write them once'
    yield from _read_by_shells(spec.command, table)


def _read_by_shells(command: list[str], table: Table) -> Iterator[str]:
    shell, option, text = [*command, "", "", ""][:3]
    if not (_SHELL.fullmatch(shell) and _READS_NEXT.fullmatch(option)) or command == BY_BASH:
        return
    for name in references(text):
        if odd := [value for value in table.values_of(name) if not _PLAIN.fullmatch(value)]:
            how = f"""[{shell}, {option}, 'train "$1"', {shell}, "{{{name}}}"]"""
            yield f"{shell} reads {{{name}}} as shell text, such as {shown(odd[0])}: {how} passes it unread"


class Member(NamedTuple):
    """What one member of an array runs."""

    number: int
    name: str | None
    """Its own name; None if all members have the run's."""
    parameters: dict[str, str]
    command: list[str]
    env: dict[str, str]
    """The variables in which members differ."""
    workdir: str | None


def members(plan: Plan) -> Iterator[Member]:
    """Each member of a job with parameters, in order."""
    table = plan.parameters
    differing = {name: value for name, value in plan.env.items() if value is not None and references(value)}
    for number in range(table.size if table else 0):
        values = table.values(number) if table else {}
        yield Member(
            number,
            None if plan.member_name is None else filled(plan.member_name, values),
            values,
            [filled(word, values) for word in plan.command],
            {name: filled(value, values) for name, value in differing.items()},
            None if plan.workdir is None else filled(plan.workdir, values),
        )


def script_rows(table: Table) -> Iterator[str]:
    """The rows of a table as a script holds them: values in JSON, separated by tabs. True and False stay as
    they are spelled, for commands.
    """
    rows = [["\t".join(map(_cell, row)) for row in block.rows] for block in table.blocks]
    return map("\t".join, itertools.product(*rows))


def _cell(value: str) -> str:
    return value if is_boolean(value) else json_scalar(value)


def with_marks(plan: Plan) -> Plan:
    """A plan in whose texts marks stand for parameters, which `shell_word` writes as shell variables."""
    if plan.parameters is None:
        return plan
    names = frozenset(plan.parameters.names)

    def marked(text: str) -> str:
        return replaced(text, lambda name: parameter_mark(name) if name in names else None)

    return msgspec.structs.replace(
        plan,
        command=[*map(marked, plan.command)],
        env={name: None if value is None else marked(value) for name, value in plan.env.items()},
        workdir=None if plan.workdir is None else marked(plan.workdir),
    )


def for_torchrun(word: str) -> str:
    """A word that torchrun passes on: it would replace $$ by $, and ${local_rank} by the local rank."""
    doubled = word.replace("$", "$$")
    return re.sub(r"\x00(\w+)\x00", lambda match: parameter_mark(match[1], doubled=True), doubled)
