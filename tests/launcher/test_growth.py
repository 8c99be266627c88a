"""What grows with the members of an array and the hosts of a job: operations are counted, at two sizes."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff import JobSpec, Site, plan, render
from castoff.launcher.logs.printing import write_logs
from castoff.launcher.logs.sources import Selection
from castoff.launcher.report.results import results
from castoff.launcher.runs.records import Send
from castoff.launcher.status.watch import status

from .fake_slurm import FakeSlurm, OnSlurm

FEW, MANY = 20, 80


def array(folder: Path, members: int) -> OnSlurm:
    """An array whose members have all ended well."""
    made = OnSlurm(folder / str(members), members)
    (made.run.path / "logs").mkdir()
    for member in range(members):
        made.attempt(f"{member}.0", "done")
        made.run.script_log(member).write_text("one line\n")
    return made


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of names in the folders that were listed."""
    numbers: list[int] = []
    real = os.listdir

    def listdir(path: Any) -> list[str]:
        numbers.append(len(names := real(path)))
        return names

    monkeypatch.setattr(os, "listdir", listdir)
    return numbers


def _results(made: OnSlurm) -> None:
    results([(made.run, status(made.run))], 2000.0)


def _logs(made: OnSlurm) -> None:
    attempts = [(one.member, one.attempts[-1]) for one in status(made.run).members]
    write_logs(made.run, attempts, Selection(), lambda _: None)


@pytest.mark.parametrize("does", [_results, _logs])
def test_the_members_folders_are_listed_once(
    does: Callable[[OnSlurm], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[int]
) -> None:
    FakeSlurm(tmp_path, monkeypatch)
    read = []
    for members in (FEW, MANY):
        made = array(tmp_path, members)
        listed.clear()
        does(made)
        read.append(sum(listed) / members)
    assert read[1] <= read[0] + 1


def test_a_job_s_indices_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeSlurm(tmp_path, monkeypatch)
    made, calls, real = [array(tmp_path, members) for members in (FEW, MANY)], list[int](), Send.starts

    def starts(self: Send) -> dict[int, int | None]:
        calls.append(1)
        return real(self)

    monkeypatch.setattr(Send, "starts", starts)
    counts = []
    for one in made:
        calls.clear()
        status(one.run)
        counts.append(len(calls))
    assert counts[0] == counts[1]


def functions_of(script: str, *names: str) -> str:
    """Some of a script's functions."""
    found = (re.search(rf"^castoff_{name}\(\) .*?^}}\n", script, re.M | re.S) for name in names)
    return "".join(one[0] for one in found if one)


def test_hosts_that_are_not_set_aside_cost_no_process(tmp_path: Path) -> None:
    (tmp_path / "set-aside").mkdir()
    for host, job in (("n3", "12"), ("n4", "11"), ("n5.cluster", "12")):
        record = f'{{"host": "{host}", "reason": "x", "attempt": 0, "job": "{job}", "time": 1}}'
        (tmp_path / "set-aside" / f"{host}.json").write_text(record)
    fields = {"command": ["x"], "nodes": 2, "restart": {"max": 1, "spare_nodes": 1}}
    text = render(plan(JobSpec.of(fields), Site.load("slurm")))
    functions = functions_of(text, "without_set_aside", "is_set_aside")
    counting = 'for one in grep sed; do eval "$one() { echo >>calls; command $one \\"\\$@\\"; }"; done\n'
    lines = f"{counting}castoff_job=12 CASTOFF_ATTEMPT=0\ncastoff_without_set_aside"
    calls = []
    for hosts in (FEW, MANY):
        (tmp_path / "calls").write_text("")
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", functions + lines],
            input="".join(f"n{host}\nn{host}.cluster\n" for host in range(hosts)),
            cwd=tmp_path,
            env={**os.environ, "CASTOFF_RUN_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        names = [f"n{host}{suffix}" for host in range(hosts) for suffix in ("", ".cluster")]
        assert answer.stdout.split() == [name for name in names if name not in ("n3", "n5.cluster")]
        calls.append((tmp_path / "calls").read_text().count("\n"))
    assert calls[0] == calls[1]


def test_a_member_that_is_over_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[int]
) -> None:
    """Although the records are read again after the scheduler's answer, for the member that has not ended."""
    slurm = FakeSlurm(tmp_path, monkeypatch)
    made = array(tmp_path, MANY)
    (made.run.path / "attempts" / "0.0" / "ending.json").unlink()
    slurm.tells(("7_0", "RUNNING"), run=made.run)
    assert status(made.run).state == "running"
    attempts = sum(1 for names in listed if names <= 2)
    assert attempts == MANY + 1
    assert "squeue" in slurm.questions()


def test_many_attempts_are_read_without_threads_if_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeSlurm(tmp_path, monkeypatch)
    made = array(tmp_path, MANY)
    expected = status(made.run)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert status(made.run) == expected


REFUSES = """
castoff_run_on() { # SECONDS FILE PROGRAM: a launcher that starts nothing on a list with the bad host
  echo "$(wc -l <"$2")" >>calls
  grep -qx bad "$2" || sed 's/^/1 answered /' "$2" >>"$castoff_answers"
}
castoff_ask hosts program
castoff_missing hosts
"""


@pytest.mark.parametrize(("hosts", "calls"), [(2, 2 + 1), (20, 20 + 1), (2_000, 1 + 16 + 16 + 8)])
def test_a_bad_host_among_many_is_found_in_a_few_questions(hosts: int, calls: int, tmp_path: Path) -> None:
    fields = {"command": ["x"], "nodes": 2, "restart": {"max": 1, "spare_nodes": 1}}
    functions = functions_of(render(plan(JobSpec.of(fields), Site.load("slurm"))), "ask", "missing", "await")
    names = [f"n{host}" for host in range(hosts)]
    names[hosts // 3] = "bad"
    (tmp_path / "hosts").write_text("".join(f"{name}\n" for name in names))
    (tmp_path / "calls").touch()
    answer = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", functions + REFUSES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "bad\n"
    assert len((tmp_path / "calls").read_text().splitlines()) == calls
