"""Runs that wait for runs that never begin, as Slurm lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.status.watch import poll, statuses

from ..fake_slurm import FakeSlurm, OnSlurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path, monkeypatch)


def queue(slurm: FakeSlurm, *rows: tuple[str, str, OnSlurm]) -> None:
    """squeue's answer: job, reason and run; `7_2` is a task."""
    lines = []
    for job, reason, made in rows:
        number, _, task = job.partition("_")
        lines.append(f"{number}|{task or 'N/A'}|PENDING|{reason}|900|N/A|N/A|{made.run.script}\n")
    slurm.queue.write_text("".join(lines))


def after(tmp_path: Path, name: str, condition: str, other: OnSlurm, members: int = 1) -> OnSlurm:
    job = str(10 + int(name[-1]))
    count = members if members > 1 else None
    sends = [{"job": job, "offset": 0, "count": count, "time": 899.0}]
    return OnSlurm(tmp_path, members, name, job=job, sends=sends, after={condition: [str(other.run.path)]})


def test_a_chain(slurm: FakeSlurm, tmp_path: Path) -> None:
    first = OnSlurm(tmp_path, id="made-0")
    second = after(tmp_path, "made-2", "afterany", first)
    third = after(tmp_path, "made-3", "afterok", second)
    other = OnSlurm(tmp_path, id="made-4", job="40", sends=[{"job": "40", "time": 899.0}])
    queue(
        slurm,
        *(("7", "DependencyNeverSatisfied", first), ("12", "Dependency", second)),
        *(("13", "Dependency", third), ("40", "Dependency", other)),
    )
    runs = [third.run, other.run, first.run, second.run]
    found = statuses(runs)
    assert [one.never_begins for one in found] == [True, False, True, True]
    assert found[0].reason == "it waits for made-2, which never begins"
    assert [one.never_begins for one in statuses(runs[:2])] == [False, False], "the first is not among them"
    assert all(one.never_begins for one in list(poll([third.run, first.run, second.run], 5))[-1])


def test_pairs(slurm: FakeSlurm, tmp_path: Path) -> None:
    first = OnSlurm(tmp_path, 3, "made-0")
    second = after(tmp_path, "made-2", "aftercorr", first, 3)
    queue(
        slurm,
        *((f"7_{task}", "DependencyNeverSatisfied" if task == 1 else "Priority", first) for task in range(3)),
        *((f"12_{task}", "Dependency", second) for task in range(3)),
    )
    found = statuses([first.run, second.run])[1]
    assert [member.dependency_never_satisfied for member in found.members] == [False, True, False]
    assert not found.never_begins
