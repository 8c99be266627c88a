"""Run directories as scripts on a cluster leave them, made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.logs.following import Follower
from castoff.launcher.logs.show import End, Show, Text
from castoff.launcher.logs.sources import Selection
from castoff.launcher.runs.run import RunDirectory


class MadeRun(RunDirectory):
    """A run of a PBS script: where no qstat is, nobody but its records tells what became of it."""

    def __init__(self, path: Path, members: int = 1):
        super().__init__(path)
        for folder in ("attempts", "logs"):
            (path / folder).mkdir(parents=True)
        (path / "job.sh").touch()
        plan = {"name": "made", "scheduler": "pbs", "launcher": "pals", "ranks": 256}
        self.record("plan.json", {**plan, "array_count": members if members > 1 else None})
        self.job_id = "7[].head" if members > 1 else "7.head"
        sent = {"job": self.job_id, "count": members if members > 1 else None}
        self.record("submission.json", {"scheduler": "pbs", "job": self.job_id, "sends": [sent]})

    def record(self, name: str, facts: dict[str, Any]) -> None:
        (self.path / name).write_text(json.dumps(facts))

    def begin(self, attempt: str = "0.0") -> Path:
        """The folder of its logs."""
        (self.path / "attempts" / attempt).mkdir()
        (self.log_folder / attempt).mkdir()
        self.record(f"attempts/{attempt}/start.json", {"job": self.job_id, "host": "x1", "time": 1000})
        return self.log_folder / attempt

    def fail(self, rank: int | None, attempt: str = "0.0", **facts: Any) -> None:
        record = {"rank": rank, "host": "x1", "code": 1, "signal": None, "time": 1005, **facts}
        self.record(f"attempts/{attempt}/failure.json", record)

    def end(self, attempt: str = "0.0", ending: str = "done", code: int = 0) -> None:
        self.record(f"attempts/{attempt}/ending.json", {"ending": ending, "code": code, "time": 1010})


@pytest.fixture
def made(tmp_path: Path) -> MadeRun:
    return MadeRun(tmp_path / "run")


class Time:
    """A clock that stands still but for pauses; in each of them, what was planned for then happens."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.plans: list[tuple[float, Callable[[], object]]] = []
        self.pauses = 0

    def at(self, seconds: float, happens: Callable[[], object]) -> None:
        self.plans.append((1000.0 + seconds, happens))

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.now += max(seconds, 0.001)
        assert self.now < 2000, "it does not end"
        for plan in sorted(self.plans, key=lambda one: one[0]):
            if plan[0] <= self.now:
                self.plans.remove(plan)
                plan[1]()


class Followed:
    """What following a run has shown and said, in a time of its own."""

    def __init__(self, run: RunDirectory, time: Time, selection: Selection, show: Show):
        self.shown = b""
        self.said: list[str] = []
        follower = Follower(
            run,
            selection,
            show,
            write=self._write,
            report=self.said.append,
            pause=time.pause,
            clock=lambda: time.now,
        )
        self.end: End = follower.follow()

    def _write(self, data: bytes) -> None:
        self.shown += data

    @property
    def lines(self) -> list[str]:
        return self.shown.decode().splitlines()


def plain() -> Text:
    return Text(several=False, terminal=False, colours=False)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def follow(time: Time, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Followed]:
    """`follow(run, show, members=…, …)`: follow it to its end on a host without a qstat."""
    monkeypatch.setenv("PATH", "/nowhere")

    def start(run: RunDirectory, show: Show | None = None, **selection: Any) -> Followed:
        return Followed(run, time, Selection(**selection), show or plain())

    return start
