"""flux batch's directives: what a job asks for, and how it is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from castoff import JobSpec, Site, plan, render
from castoff.launcher.errors import InvalidInput
from castoff.launcher.launchers.base import Layout, Request
from castoff.launcher.schedulers.flux.batch_directives import DIALECT, directive, refused
from castoff.launcher.schedulers.flux.scheduler import SCHEDULER
from tests.hostile import any_text

from ...scripts.readers import read_flux

SITE = Site(name="s", description="d", scheduler="flux", launcher="flux")
REQUEST = Request(Layout([(4, 2)]), 8, [], 1, 4, SITE, name="job", walltime=5400, grace=120)


def asked(request: Request = REQUEST, **fields: Any) -> dict[str, str | bool]:
    return dict(SCHEDULER.directives(JobSpec.of({"command": ["x"], **fields}), SITE, request))


def test_every_field() -> None:
    found = asked(
        replace(REQUEST, after="afterok:1:2,after:3"),
        account="a",
        queue="q",
        constraint="-host:n7",
        inherit=["A"],
        env_from=["KEY"],
    )
    assert list(found.items()) == [
        ("job-name", "job"),
        ("bank", "a"),
        ("queue", "q"),
        ("requires", "-host:n7"),
        ("nodes", "2"),
        ("nslots", "2"),
        ("cores-per-slot", "32"),
        ("gpus-per-slot", "4"),
        ("time-limit", "5400s"),
        ("dependency", "afterok:1:2,after:3"),
        ("env-remove", "*"),
        ("env", "HOME,LOGNAME,PATH,SHELL,USER,A,KEY"),
        ("output", "{{name}}-{{id.dec}}.out"),
    ]


def test_a_type_of_device_is_a_property_of_the_nodes() -> None:
    typed = replace(REQUEST, device_type="mi300a")
    assert asked(typed)["requires"] == "mi300a"
    assert asked(typed, constraint="a|b")["requires"] == "mi300a and (a|b)"
    assert "requires" not in asked(replace(typed, node_devices=0))


def test_whole_nodes_have_all_that_is_in_them() -> None:
    found = asked(replace(REQUEST, whole_nodes=True), inherit="all")
    assert found["exclusive"] is True
    assert not {"nslots", "cores-per-slot", "gpus-per-slot", "env", "env-remove"} & found.keys()


def test_an_option_for_each_of_several() -> None:
    words = "--dependency=afterok:1 --dependency=afterok:2 --dependency=afterstart:3"
    assert directive("dependency", "afterok:1:2,after:3") == words
    assert directive("env", "A,B") == "--env=A --env=B"
    assert directive("setopt", "mpibind=off verbose") == "--setopt=mpibind=off --setopt=verbose"
    assert directive("exclusive", True) == "--exclusive"


@given(any_text(categories=("Cc", "Cs", "Zl", "Zp", "Cf", "Cn", "Co")))
def test_a_value_is_read_back(value: str) -> None:
    try:
        line = directive("job-name", value)
    except ValueError:
        assert not value.isprintable() or '"""' in value or "'''" in value
        return
    assert read_flux(f"#!/bin/bash\n#flux: {line}\n\n") == [("job-name", value)]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\x00", "\x1b[2J", 'a"""b', "'''"])
def test_a_value_that_flux_cannot_hold_is_refused(value: str) -> None:
    for name, field in (("job-name", "name"), ("requires", "constraint"), ("conf", "directives.conf")):
        with pytest.raises(ValueError, match=f"^{field}: is"):  # as it stands in the job file
            directive(name, value)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/bash\n#flux: -N1\n\necho 'a\nflux: b'\n", "its line 5 for a directive"),
        ("#!/bin/bash\n#flux: -N1\n\n  'FLUX: x' \\\n", "its line 4"),
        ("#!/bin/bash\n#flux: -N1\n\n# flux: a name\n", "its line 4"),
        ("#!/bin/bash\n#flux: -N1\necho a\rb\n", "carriage return"),
        ("#!/bin/bash\n#flux: -N1\necho \udcff\n", "not UTF-8"),
    ],
)
def test_what_flux_batch_would_not_take(script: str, words: str) -> None:
    assert words in (refused(script) or "")


@pytest.mark.parametrize("text", ["echo a flux: b", "export A='flux: b'", "# Flux: it", "influx: 1"])
def test_what_only_looks_like_it(text: str) -> None:
    assert refused(f"#!/bin/bash\n#flux: -N1\n#flux: -t1\n\n{text}\n") is None


def test_such_a_script_is_never_rendered() -> None:
    job = JobSpec.of({"command": ["python", "-c", "x = 1\nflux: int = 2"]})
    with pytest.raises(InvalidInput, match="flux batch would take its line"):
        render(plan(job, SITE))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("N", "is a short flag"),
        ("signal", "follows from other fields; set signal instead"),
        ("bank", "set account instead"),
    ],
)
def test_directives_that_are_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        plan(JobSpec.of({"command": ["x"], "directives": {name: "1"}}), SITE)


@pytest.mark.parametrize("field", ["array", "qos", "exclude", "reservation", "memory", "mail"])
def test_what_flux_has_nothing_for(field: str) -> None:
    values = {"array": {"count": 2}, "memory": "1G", "mail": {"to": "me@x"}}
    with pytest.raises(InvalidInput, match=f"{field}: is not supported by Flux"):
        plan(JobSpec.of({"command": ["x"], field: values.get(field, "v")}), SITE)


def test_the_dialect_knows_its_own_directives() -> None:
    owned = {*DIALECT.said_by_fields, *DIALECT.needed}
    assert set(asked(account="a", queue="q", constraint="c")) <= owned
