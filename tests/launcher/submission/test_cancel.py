"""Ending many runs: one question and one command for all that fit, and patterns of names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import Mock

import pytest

from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers import base_queue
from castoff.launcher.schedulers.registry import queued_of
from castoff.launcher.submission import cancel

from ..conftest import Castoff, objects
from ..fake_pbs import FakePbs, OnPbs
from ..fake_slurm import FakeSlurm, OnSlurm

COUNT = 23


class Cluster(Protocol):
    """A fake scheduler with runs that are running."""

    runs: list[RunDirectory]

    def counted(self) -> dict[str, int]:
        """How often each program was called since the last time."""
        ...

    def refuses(self, place: int) -> None:
        """It ends all but one run, of which it says that it is somebody else's."""
        ...


class Slurm:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.fake = FakeSlurm(folder, monkeypatch)
        self.runs = []
        for number in range(COUNT):
            sends = [{"job": str(7 + number), "offset": 0, "count": None, "time": 899.0}]
            one = OnSlurm(folder, id=f"made-{number}", job=str(7 + number), sends=sends)
            one.attempt("0.0", job=str(7 + number))
            self.runs.append(one.run)
        self.queue = {7 + number: run for number, run in enumerate(self.runs)}
        self._tell(self.fake.queue, self.queue)
        self._tell(self.fake.folder / "after", {})
        self.fake.program("scancel", f"cp {self.fake.folder}/after {self.fake.queue}")
        starts = [
            f"{job}|CANCELLED by 0|0:15|905|906|990|sbatch {run.script}" for job, run in self.queue.items()
        ]
        self.fake.history.write_text("\n".join(starts) + "\n")

    def _tell(self, path: Path, jobs: dict[int, RunDirectory]) -> None:
        path.write_text(
            "".join(f"{job}|N/A|RUNNING|None|900|N/A|N/A|{run.script}\n" for job, run in jobs.items())
        )

    def counted(self) -> dict[str, int]:
        words = self.fake.questions()
        return {word: words.count(word) for word in words}

    def refuses(self, place: int) -> None:
        self._tell(self.fake.folder / "after", {7 + place: self.runs[place]})
        said = f"scancel: error: Kill job error on job id {7 + place}: Access/permission denied"
        line = f"cp {self.fake.folder}/after {self.fake.queue}; echo '{said}' >&2; exit 1"
        self.fake.program("scancel", line)


class Pbs:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.fake = FakePbs(folder, monkeypatch)
        self.runs = []
        for number in range(COUNT):
            send = {"job": f"{7 + number}.head", "offset": 0, "count": None}
            one = OnPbs(folder, id=f"made-{number}", job=send["job"], sends=[send])
            one.attempt("0.0", job=f"{7 + number}.head")
            self.runs.append(one.run)
        self._tell(-1)
        self.fake.answer.rename(self.fake.folder / "before")
        self._tell(None)
        self.fake.answer.rename(self.fake.folder / "after")
        (self.fake.folder / "before").rename(self.fake.answer)
        self.fake.program("qdel", f"cp {self.fake.folder}/after {self.fake.answer}")

    def _tell(self, running: int | None) -> None:
        jobs: dict[str, dict[str, Any]] = {}
        for number, run in enumerate(self.runs):
            goes_on = running in (-1, number)
            state = {"job_state": "R"} if goes_on else {"job_state": "F", "Exit_status": 271}
            jobs[f"{7 + number}.head"] = {**state, "Submit_arguments": f"-v A {run.script}"}
        self.fake.tells(jobs)

    def counted(self) -> dict[str, int]:
        words = [line.split()[0] for line in self.fake.questions()]
        return {word: words.count(word) for word in words}

    def refuses(self, place: int) -> None:
        now = self.fake.answer.read_bytes()
        self._tell(place)
        self.fake.answer.rename(self.fake.folder / "after")
        self.fake.answer.write_bytes(now)
        said = f"qdel: Unauthorized Request  {7 + place}.head"
        line = f"cp {self.fake.folder}/after {self.fake.answer}; echo '{said}' >&2; exit 159"
        self.fake.program("qdel", line)


@pytest.fixture(params=[Slurm, Pbs])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made: Cluster = request.param(tmp_path, monkeypatch)
    index = Index.of(os.environ)
    for number, run in enumerate(made.runs):
        index.add(run, "odd" if number % 2 else "even")
    return made


class TestMany:
    def test_are_ended_by_one_command(
        self, castoff: Castoff, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or by as few as their number allows; and the questions are as many as for one."""
        monkeypatch.setattr(base_queue, "_MOST_CANCELLED", 10)
        answer = castoff("cancel", *(run.path for run in cluster.runs))
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.splitlines() == [f"{run.id}: ended, cancelled" for run in cluster.runs]
        counted = cluster.counted()
        assert counted.pop("scancel", 0) + counted.pop("qdel", 0) == 3
        assert max(counted.values()) <= 4, counted

    def test_one_that_is_refused_is_reported_of_alone(self, castoff: Castoff, cluster: Cluster) -> None:
        cluster.refuses(5)
        answer = castoff("cancel", "--json", *(run.path for run in cluster.runs))
        refused = cluster.runs[5].id
        assert answer.returncode == 1
        assert [one["id"] for one in objects(answer.stdout)] == [
            run.id for run in cluster.runs if run.id != refused
        ]
        (error,) = objects(answer.stderr)
        assert (
            error["error"].startswith(f"{refused}: ") and error["error"].count("failed with exit code") == 1
        )

    def test_a_scheduler_that_does_not_answer(self, castoff: Castoff, cluster: Cluster) -> None:
        """What it does not say of one is said of all; none of them is told to have ended."""
        name = "scancel" if isinstance(cluster, Slurm) else "qdel"
        cluster.fake.program(name, "echo 'cannot reach it' >&2; exit 1")  # type: ignore[attr-defined]
        answer = castoff("cancel", *(run.path for run in cluster.runs))
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.count("cannot reach it") == COUNT

    def test_by_name(self, castoff: Castoff, cluster: Cluster) -> None:
        cluster.refuses(3)  # the others have ended by then
        assert castoff("cancel", "--name", "ev*").stdout.splitlines() == [
            f"{run.id}: ended, cancelled" for run in cluster.runs[::2]
        ]
        answer = castoff("cancel", "--name", "ev*")
        assert (answer.returncode, answer.stdout) == (0, "")
        assert answer.stderr == "castoff: no active run has such a name: ev*\n"
        answer = castoff("cancel", "--name", "none*", "--name", "such")
        assert answer.returncode == 1 and "there are no runs of such a name: none*, such" in answer.stderr


def test_the_newest_job_ends_first(castoff: Castoff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that waits for the end of an older job could begin before it is ended itself."""
    made = Slurm(tmp_path, monkeypatch)
    monkeypatch.setattr(base_queue, "_MOST_CANCELLED", 10)
    assert castoff("cancel", *(run.path for run in made.runs)).returncode == 0
    asked = [line.split() for line in made.fake.asked.read_text().splitlines()]
    jobs = [int(word) for words in asked if words[0] == "scancel" for word in words if word.isdecimal()]
    assert jobs == [*reversed(range(7, 7 + COUNT))]


def test_the_newest_run_of_castoffs_own_scheduler_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cancel, "owns_latest_submission", lambda _: True)
    monkeypatch.setattr(cancel, "cancel", asked.append)
    requests = [
        cancel.CancelRequest(Mock(), Mock(state="pending", scheduler="local", submitted=time))
        for time in (2.0, None, 1.0, 3.0)
    ]
    cancel._ask(requests)
    assert asked == [requests[number].run for number in (3, 0, 2, 1)]
    assert all(request.asked for request in requests)


def test_which_jobs_a_refusal_names() -> None:
    """A whole id, and not the beginning or the end of another's."""
    asked = queued_of("slurm").queue({"PATH": "/nowhere"})
    assert asked.cancel([]) == {}
    assert asked.cancel(["7", "8"]).keys() == {"7", "8"}  # scancel is not there
    said = "scancel: error: Kill job error on job id 17_3: no\nscancel: error: Kill job error on job id 7: no"
    done = subprocess.CompletedProcess(["/bin/scancel"], 1, "", said)
    assert base_queue._refusals(["7", "17", "3", "17_3"], done).keys() == {"7", "17_3"}
