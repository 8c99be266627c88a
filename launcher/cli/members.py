"""castoff render --members: what each member of an array runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable

from castoff.launcher.cli.output import print_json
from castoff.launcher.config.parameter_files import BY_BASH, COMMAND
from castoff.launcher.config.references import filled
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.planning.parameters import Member, members
from castoff.launcher.runs.plan import Plan

_WIDEST = 32
"""The maximum width of a parameter's column."""


def print_members(plan: Plan, *, as_json: bool) -> None:
    """Print a line for each member, as soon as it is known.

    Raises:
        CastoffError: the members do not differ.
    """
    if (table := plan.parameters) is None:
        what = "all its members run the same" if plan.array_count else "it has no array"
        raise CastoffError(f"{plan.name}: {what}; array.parameters gives members values of their own")
    if as_json:
        for member in members(plan):
            facts = {**member._asdict(), "parameters": table.typed(member.number)}
            print_json({"member": facts.pop("number"), **facts})
        return
    names = [] if _is_of_commands(plan) else table.names  # else the only parameter is what runs
    named = [] if plan.member_name is None else ["name"]
    longest = {name: max(table.values_of(name), key=len) for name in table.names}
    widths = [max(len(str(table.size - 1)), len("member"))]
    widths += [_width("name", [filled(plan.member_name or "", longest)]) for _ in named]
    widths += [_width(name, table.values_of(name)) for name in names]
    _print_row(widths, ["member", *named, *names, "runs"])
    for member in members(plan):
        which = [str(member.number), *([] if member.name is None else [member.name])]
        line = member.parameters[COMMAND] if _is_of_commands(plan) else _line(member)
        _print_row(widths, [*which, *(member.parameters[name] for name in names), line])


def _is_of_commands(plan: Plan) -> bool:
    """Whether each member runs a line of a file of commands, and nothing else differs."""
    return plan.command == BY_BASH and plan.parameters is not None and plan.parameters.names == [COMMAND]


def _width(heading: str, values: Iterable[str]) -> int:
    return min(max(len(heading), *map(len, values)), _WIDEST)


def _print_row(widths: Iterable[int], cells: list[str]) -> None:
    *columns, last = map(printable, cells)
    padded = [cell.ljust(width) for cell, width in zip(columns, widths, strict=True)]
    sys.stdout.write("  ".join([*padded, last]) + "\n")


def _line(member: Member) -> str:
    """What a member runs, as a shell line, with its own folder and variables."""
    folder = "" if member.workdir is None else f"cd {shlex.quote(member.workdir)} && "
    variables = [f"{name}={shlex.quote(value)}" for name, value in member.env.items()]
    return folder + " ".join([*variables, shlex.join(member.command)])
