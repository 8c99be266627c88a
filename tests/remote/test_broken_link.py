"""A link that breaks, stalls or is slow: afterwards the same command leads to exactly one job."""

from __future__ import annotations

import re

import pytest

from tests import patience
from tests.cases import others_long
from tests.remote.conftest import Laptop

_WHOLE = 9000
"""Bytes that a whole submission sends over a new connection, at the least."""


def submit_until_answered(laptop: Laptop, *words: str) -> int:
    """Call the same command until it is answered, with a whole link from the second time on; how often."""
    for times in range(1, 5):
        answer = laptop("--on", "far", "submit", *words)
        if answer.returncode == 0:
            return times
        assert "far: " in answer.stderr, answer.stderr
        assert "nothing is lost: `castoff --on far submit" in answer.stderr, answer.stderr
        assert "Traceback" not in answer.stderr
        laptop.machine.order_link("")
    raise AssertionError(answer.stderr)


def one_job_and_nothing_else(laptop: Laptop) -> None:
    assert laptop("--on", "far", "wait", "--name", "toy").returncode == 0
    assert len(laptop.runs()) == 1, laptop.runs()
    assert laptop.times_run() == 1
    projects = [*(laptop.far / "code").iterdir()]
    assert len(projects) == 1 and len([*projects[0].glob("[!.]*")]) == 1
    assert not [*projects[0].glob(".*.partial")]
    assert not [*(laptop.home / ".local/state/castoff/on/pending").glob("*")]


@pytest.mark.parametrize("direction", ["cut", "cut-back"])
@pytest.mark.parametrize("at", others_long(*range(2500, _WHOLE, 250), everyday=(2500, 5000, 6500, 8000)))
def test_a_submission_over_a_link_that_breaks(laptop: Laptop, direction: str, at: int) -> None:
    laptop.add("far", "broken")
    laptop.a_job()
    laptop.machine.order_link(f"{direction} {at}")
    submit_until_answered(laptop, "job.yaml")
    one_job_and_nothing_else(laptop)
