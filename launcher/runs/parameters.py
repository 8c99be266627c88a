"""The parameters of a run's members: read from its records, shown as `lr=1e-3, seed=2`, and selected by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from castoff.launcher.config.parameters import NAME, Block, Table, same
from castoff.launcher.config.references import filled
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.runs.records import read, record_bytes
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.script import head_of
from castoff.launcher.typed.suggestion import suggestion

_PAIR = re.compile(rf"({NAME})=(.*)", re.ASCII | re.DOTALL)
_BETWEEN = re.compile(rf",(?={NAME}=)", re.ASCII)
_IN_SCRIPT = re.compile(
    r"^castoff_parameters ([^\n]*) <<'CASTOFF_PARAMETERS'\n(.*?)^CASTOFF_PARAMETERS$", re.M | re.S
)

_LISTED = 12
"""The maximum number of values that an error lists."""


class RunParameters(msgspec.Struct, frozen=True):
    """The parameters of a run's members, as plan.json holds them; `parameters` is None if there are none."""

    parameters: Table | None = None
    member_name: str | None = None
    """The name of each member, which refers to parameters; None: all have the run's."""

    @property
    def names(self) -> list[str]:
        """The parameters' names."""
        return self.parameters.names if self.parameters else []

    @property
    def varying(self) -> list[str]:
        """The names of those parameters that have several values."""
        table = self.parameters
        return [name for name in self.names if table and len(table.values_of(name)) > 1] or self.names

    def values(self, member: int) -> dict[str, str]:
        """A member's values by name, as spelled; empty if the run has no such member."""
        table = self.parameters
        return table.values(member) if table and member < table.size else {}

    def typed(self, member: int) -> dict[str, Any]:
        """A member's values by name, as numbers, true, false or text."""
        table = self.parameters
        return table.typed(member) if table and member < table.size else {}

    def words(self, member: int) -> str:
        """A member's parameters on one line: `lr=1e-3, seed=2`."""
        return ", ".join(f"{name}={printable(value)}" for name, value in self.values(member).items())

    def name(self, member: int) -> str | None:
        """A member's own name; None if all have the run's."""
        return None if self.member_name is None else filled(self.member_name, self.values(member))

    def selected(self, run: str, words: Iterable[str]) -> list[int]:
        """The members with these values, as `lr=1e-3,seed=2`; of several values of one name, any counts.

        Raises:
            CastoffError: there is no such parameter, value or combination.
        """
        wanted = pairs(words)
        if (table := self.parameters) is None:
            names = ", ".join(dict.fromkeys(name for name, _ in wanted))
            raise CastoffError(f"{run}: its members have no parameters, so {names} selects none")
        chosen: dict[str, set[str]] = {}
        for name, value in wanted:
            if name not in table.names:
                raise CastoffError(f"{run}: no parameter {name}{suggestion(name, table.names)}")
            known = table.values_of(name)
            found = [value] if value in known else [one for one in known if same(one, value)]
            if not found:
                listed = ", ".join(map(printable, known[:_LISTED]))
                more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
                raise CastoffError(
                    f"{run}: no member has {name}={printable(value)}; there are {listed}{more}"
                )
            chosen.setdefault(name, set()).update(found)
        places = {table.names.index(name): values for name, values in chosen.items()}
        members = [
            member
            for member in range(table.size)
            if all(table.row(member)[place] in values for place, values in places.items())
        ]
        if not members:
            raise CastoffError(f"{run}: no member has {' and '.join(words)} together")
        return members


def parameters_of(run: RunDirectory) -> RunParameters:
    """Read the parameters of a run's members.

    Raises:
        CastoffError: a record cannot be read.
    """
    planned = read(run.path / "plan.json", RunParameters)
    return planned or _in_script(record_bytes(run.script).decode(errors="replace"))


def _in_script(script: str) -> RunParameters:
    """The parameters in a script that was submitted by hand and made its run directory itself."""
    if (found := _IN_SCRIPT.search(head_of(script))) is None:
        return RunParameters()
    try:
        rows = [[*map(_spelled, row.split("\t"))] for row in found[2].splitlines()]
    except ValueError:
        return RunParameters()
    return RunParameters(Table([Block(found[1].split(), rows)]))


def _spelled(scalar: str) -> str:
    """A value from a script, as it was spelled."""
    return str(json.loads(scalar)) if scalar.startswith('"') else scalar


def is_selector(word: str) -> bool:
    """Whether a word selects members by their parameters."""
    return _PAIR.fullmatch(word) is not None


def pairs(words: Iterable[str]) -> Sequence[tuple[str, str]]:
    """The names and values of words such as `lr=1e-3,seed=2`.

    Raises:
        CastoffError: a word has another form.
    """
    found = []
    for part in (part for word in words for part in _BETWEEN.split(word)):
        if (match := _PAIR.fullmatch(part)) is None:
            raise CastoffError(f"{printable(part)}: members are selected as in lr=1e-3,seed=2")
        found.append((match[1], match[2]))
    return found
