"""flux batch's directives as flux-batch(1) reads them, in the fields of a job file."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.flux.batch_directives import seconds
from castoff.launcher.schedulers.flux.batch_scripts import READER, read


def asked(*lines: str) -> Asked:
    found = Asked()
    for line in lines:
        read(line, found)
    return found


FIELDS: dict[str, dict[str, Any]] = {
    "--job-name=a -q pbatch -B guests": {"name": "a", "queue": "pbatch", "account": "guests"},
    "-t 1h": {"walltime": "01:00:00"},
    "-t 90 # minutes": {"walltime": "01:30:00"},
    "-x": {"exclusive": True},
    "--requires='host:a'": {"constraint": "host:a"},
    "--dependency=afterok:f123": {"after": {"afterok": ["f123"]}},
}


@pytest.mark.parametrize("line", FIELDS)
def test_fields(line: str) -> None:
    assert asked(line).fields == FIELDS[line]


def test_numbers() -> None:
    found = asked("-N2 -n 8", "-c=4 --gpus-per-slot=1")
    assert (found.nodes, found.ranks, found.rank_devices) == (2, 8, 1)


def test_attributes_add_up() -> None:
    assert asked("--setattr=a=1", "-S b=2").directives == {"setattr": "a=1 b=2"}


def test_sizes_and_output_are_kept_as_they_are_written() -> None:
    found = asked("-N2 -n 8 -c=4 -g 1 -x --output=x --error=y --signal=USR2@5m")
    counts = {"nodes": "2", "nslots": "8", "cores-per-slot": "4", "gpus-per-slot": "1", "exclusive": True}
    assert found.raw == {**counts, "output": "x", "error": "y"}
    assert found.fields == {"exclusive": True, "signal": "USR2@5m"}
    assert found.remarks == []


@pytest.mark.parametrize(
    ("text", "expected"), [("30m", 1800), ("1.5h", 5400), ("10", 600), ("45s", 45), ("1d", 86400)]
)
def test_durations(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("line", ["# flux: -N2", "#flux: -N2", "# FLUX: -N2", "#FLUX:-N2"])
def test_marks(line: str) -> None:
    found = READER.directive.match(line)
    assert found is not None and found[1] == "-N2"
