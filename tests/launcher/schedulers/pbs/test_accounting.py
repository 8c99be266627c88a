"""What qstat prints about the resources of jobs, and what castoff makes of it."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.runs.records import Usage
from castoff.launcher.schedulers.job_info import JobUsage
from castoff.launcher.schedulers.pbs.accounting import parse_usage

from ..pages import page
from .test_jobs import FURTHER, block

BEGAN = time.mktime(time.strptime("Sat Nov 28 08:42:27 2026", "%a %b %d %H:%M:%S %Y"))

USED = {
    "job_state": "F",
    "resources_used.cpupercent": 98,
    "resources_used.cput": "26:03:04",
    "resources_used.mem": "5124kb",
    "resources_used.ncpus": 4,
    "resources_used.walltime": "00:12:00",
    "stime": "Sat Nov 28 08:42:27 2026",
    "Resource_List.mem": "2gb",
}


def test_a_job_and_a_member() -> None:
    used = Usage("qstat", 720, 93784, 4, 5124 << 10, 2 << 30)
    assert parse_usage(page(block("7.head", USED) + block("8[3].head", USED))) == [
        JobUsage("7.head", None, BEGAN, used),
        JobUsage("8[].head", 3, BEGAN, used),
    ]


def test_what_the_mom_has_not_seen_is_not_known() -> None:
    """A job of root on OpenPBS cd7ab5e, which computed for 19 s."""
    nothing = dict.fromkeys(("mem", "vmem"), "0kb") | {"cpupercent": 0, "cput": "00:00:00"}
    used = {f"resources_used.{name}": value for name, value in nothing.items()}
    told = {**USED, **used, "resources_used.walltime": "00:00:19"}
    (found,) = parse_usage(page(block("7.head", told)))
    assert found.usage == Usage("qstat", 19, None, 4, None, 2 << 30)


def test_what_has_not_begun_used_nothing() -> None:
    assert parse_usage(page(block("7.head", {"job_state": "Q", "Resource_List.mem": "2gb"}))) == []
    assert parse_usage(page(block("7.head", USED)[:-1])) == []


@given(FURTHER, st.sampled_from(sorted(USED)), st.text("0123456789:kbgmx-", max_size=25))
def test_no_value_is_an_error(further: dict[str, str], name: str, value: str) -> None:
    (found,) = parse_usage(page(block("7.head", {**USED, **further, name: value})))
    assert found.job == "7.head"
