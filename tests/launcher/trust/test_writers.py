"""Who else can change something: every case of the table in `launcher.trust.writers`, made for real."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.trust import writers

_MADE = 'mount -t tmpfs -o mode=755 tmpfs /mnt && exec "$@"'


def cases() -> list[dict[str, str]]:
    """The rows of the table."""
    rows = [line.strip("|").split("|") for line in (writers.__doc__ or "").splitlines() if line[:1] == "|"]
    head, _, *found = [[cell.strip() for cell in row] for row in rows]
    return [dict(zip(head, row, strict=True)) for row in found]


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    """Users and groups of this machine for those of the table: `me` has a group with nobody else in it."""
    found = {"me": "daemon", "mine": "daemon", "bob": "bin", "proj": "users"}
    try:
        groups = [grp.getgrnam(found[one]) for one in ("mine", "proj")]
        users = [pwd.getpwnam(found[one]) for one in ("me", "bob")]
    except KeyError as error:
        pytest.skip(f"{error}: this system has other users")
    if users[0].pw_gid != groups[0].gr_gid or groups[0].gr_mem:
        pytest.skip("the group of daemon has other members")
    return found


@pytest.fixture(scope="module")
def answers(names: dict[str, str]) -> list[Any]:
    """What castoff says of each case, in the order of the table."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of others")
    users = {one: pwd.getpwnam(names[one]).pw_uid for one in ("me", "bob")}
    groups = {one: grp.getgrnam(names[one]).gr_gid for one in ("mine", "proj")}
    ids = {**users, **groups, "root": 0, "unknown": 0}
    program = [sys.executable, "-m", "tests.launcher.trust.make_cases", "/mnt", json.dumps(ids)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _MADE, "sh", *program],
        input=json.dumps(cases()),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    if "unshare: unshare failed" in done.stderr:
        pytest.skip("only root can: this one may make no mount namespace")
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("number", range(len(cases())), ids=[" ".join(case.values()) for case in cases()])
def test_a_case(number: int, answers: list[Any], names: dict[str, str]) -> None:
    expected, anyone = cases()[number]["who can change it"], False
    if expected.endswith(", as anyone"):
        expected, anyone = expected.partition(",")[0], True
    found = answers[number]
    if expected == "nobody":
        assert found == []
        return
    ((why, is_anyone),) = found
    named = re.sub(r"\b(bob|proj)\b", lambda name: names[name[0]], expected)
    begins = "belongs to " if expected == "owner" else f"can be changed by {named} ("
    assert why.startswith(begins)
    assert is_anyone == (anyone or expected == "everybody")
    assert ("POSIX access list)" in why) == (cases()[number]["list"] != "-")


def test_the_table_has_each_kind_of_case() -> None:
    """No row twice, and every kind of owner: a table cut short would be tested in short."""
    of = [tuple(case.values()) for case in cases()]
    assert {one[0] for one in of} == {"me", "root", "bob", "unknown"} and len(set(of)) == len(of) > 20
