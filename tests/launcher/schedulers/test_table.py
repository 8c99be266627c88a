"""Each row of a scheduler's table: what it writes of a field is read as that field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from castoff import JobSpec, Site
from castoff.launcher.config.quantities import seconds
from castoff.launcher.errors import InvalidInput
from castoff.launcher.importing.head import read_head
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.planning import planner
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, readers, scheduler_of
from castoff.launcher.schedulers.table import Row, never, requests

from .test_fields import OF_FILES, jobs, submission


def rows(scheduler: str) -> tuple[Row, ...]:
    """A scheduler's table."""
    dialect = scheduler_of(scheduler).dialect
    assert dialect is not None
    return dialect.fields


def asked(scheduler: str, fields: dict[str, Any]) -> Asked:
    """What `castoff import` reads in the head of a job's script."""
    script = submission(scheduler, json.dumps(fields)).script
    head = read_head(script.split("\n"), readers())
    assert head.reader is not None and head.reader.name == scheduler
    assert not head.refused
    return head.asked


NOT_IN_SCRIPTS = {"restart.spare_nodes", *OF_FILES}
"""A spare node is a node to who reads the script, and a file's lines are members."""

FIELDS = sorted(
    (scheduler, field)
    for scheduler in HAVE_DIRECTIVES
    for field in requests(row for row in rows(scheduler) if row.whole is not never)
    if field not in NOT_IN_SCRIPTS
)


@pytest.mark.parametrize(("scheduler", "field"), FIELDS)
def test_a_field_comes_back_from_its_directive(scheduler: str, field: str) -> None:
    plain, given = jobs(field, scheduler)
    read = asked(scheduler, given)
    assert read != asked(scheduler, plain)
    for row in rows(scheduler):
        if row.field == field and row.value is not None:
            outer, _, inner = field.partition(".")
            wanted = given[outer][inner] if inner else given[field]
            assert _meant(field, read.fields[field]) == _meant(field, wanted)


def _meant(field: str, value: Any) -> Any:
    return seconds(value) if field == "walltime" else value


BOUNDED = [(name, row) for name in HAVE_DIRECTIVES for row in rows(name) if row.bounds]


@pytest.mark.parametrize(("scheduler", "row"), BOUNDED, ids=lambda one: getattr(one, "field", one))
def test_a_number_has_to_be_within_its_bounds(scheduler: str, row: Row) -> None:
    assert row.bounds is not None
    for bound, beyond in zip(row.bounds, (row.bounds[0] - 1, row.bounds[1] + 1), strict=True):
        assert row.read(str(row.text(bound))) == bound
        with pytest.raises(ValueError, match=r"is not from |^$"):  # NoField says nothing
            row.read(str(row.text(beyond)))
        planner.plan(JobSpec.of({"command": ["x"], row.field: bound}), Site.load(scheduler))
        with pytest.raises(InvalidInput) as caught:
            planner.plan(JobSpec.of({"command": ["x"], row.field: beyond}), Site.load(scheduler))
        (problem,) = caught.value.problems
        allowed = f"takes a whole number from {row.bounds[0]} to {row.bounds[1]}"
        assert problem.path == row.field
        assert problem.message == f"is {beyond}, but {scheduler_of(scheduler).title} {allowed}"


@pytest.mark.parametrize("scheduler", HAVE_DIRECTIVES)
def test_what_fields_say_is_in_the_table(scheduler: str) -> None:
    """So that what checks `directives:` knows of it."""
    own = {row.directive for row in rows(scheduler)} | Site.load(scheduler).directives.keys()
    for _, field in FIELDS:
        if field in scheduler_of(scheduler).handles:
            found = submission(scheduler, json.dumps(jobs(field, scheduler)[1]))
            assert {name for name, _ in found.plan.directives} <= own
