"""Following a group: which of its runs are shown, when and under which names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from castoff.launcher.logs.group_following import GroupFollower
from castoff.launcher.logs.show import Show, Text
from castoff.launcher.logs.sources import Selection
from castoff.launcher.runs.groups import Group, GroupJob, Groups
from castoff.launcher.status import watch

from ..status.test_watch import Made
from .conftest import MadeRun, Time

AFTER = {"train": {"afterok": ["prepare"]}, "evaluate": {"afterok": ["train"]}}


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, MadeRun]:
    return {name: MadeRun(tmp_path / f"{name}-1") for name in ("prepare", "train", "evaluate")}


@pytest.fixture
def group(tmp_path: Path, runs: dict[str, MadeRun]) -> Group:
    jobs = [GroupJob(name, str(run.path), AFTER.get(name, {}), sent=True) for name, run in runs.items()]
    return Groups(tmp_path / "groups").begin("pipe-20261130-000000-0000", {"name": "pipe"}, jobs)


class Followed:
    """What following a group has shown and said, in a time of its own."""

    def __init__(self, group: Group, time: Time, *, tail: int | None = None, said: list[str] | None = None):
        self.shown = b""
        follower = GroupFollower(
            group,
            Selection(tail=tail),
            show,
            write=self._write,
            report=([] if said is None else said).append,
            pause=time.pause,
            clock=lambda: time.now,
        )
        self.ends = [(name, end.ending) for name, end in follower.follow()]

    def _write(self, data: bytes) -> None:
        self.shown += data

    @property
    def lines(self) -> list[str]:
        return self.shown.decode().splitlines()


def show(name: str) -> Show:
    return Text(several=False, terminal=False, colours=False, job=name)


@pytest.fixture(autouse=True)
def _no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def whole_life(run: MadeRun, text: str) -> Callable[[], None]:
    """It begins, and writes a line."""

    def happens() -> None:
        (run.begin() / "rank-00000.log").write_text(text)

    return happens


def test_each_from_its_begin_to_its_end(group: Group, runs: dict[str, MadeRun], time: Time) -> None:
    for place, (name, run) in enumerate(runs.items()):
        time.at(10 * place + 1, whole_life(run, f"this is {name}\n"))
        time.at(10 * place + 5, run.end)
    followed = Followed(group, time)
    assert followed.lines == [
        "[prepare:0] this is prepare",
        "[train:0] this is train",
        "[evaluate:0] this is evaluate",
    ]
    assert followed.ends == [(name, "done") for name in runs]


def test_runs_side_by_side(group: Group, runs: dict[str, MadeRun], time: Time) -> None:
    for run in runs.values():
        log = run.begin() / "rank-00000.log"
        log.write_text("one\n")
        time.at(3, lambda log=log: log.write_text("one\ntwo\n"))  # type: ignore[misc]
        time.at(6, run.end)
    followed = Followed(group, time)
    assert followed.lines == [f"[{name}:0] {word}" for word in ("one", "two") for name in runs]


def test_the_last_lines_of_what_is_there_and_all_of_what_comes(
    group: Group, runs: dict[str, MadeRun], time: Time
) -> None:
    (runs["prepare"].begin() / "rank-00000.log").write_text("one\ntwo\n")
    runs["prepare"].end()
    for run in (runs["train"], runs["evaluate"]):
        time.at(1, whole_life(run, "three\nfour\n"))
        time.at(5, run.end)
    assert Followed(group, time, tail=1).lines == [
        "[prepare:0] two",
        *("[train:0] three", "[train:0] four", "[evaluate:0] three", "[evaluate:0] four"),
    ]


def test_why_nothing_begins(tmp_path: Path, time: Time) -> None:
    """Only the next in line is reported, once all has been idle for a while."""
    made = {name: Made(tmp_path / name) for name in ("prepare", "train")}
    jobs = [GroupJob(name, str(one.run.path), AFTER.get(name, {}), sent=True) for name, one in made.items()]
    group = Groups(tmp_path / "groups").begin("two-20261130-000000-0000", {"name": "two"}, jobs)
    said: list[str] = []
    counts: list[int] = []
    for seconds in (1.0, 4.0):
        time.at(seconds, lambda: counts.append(len(said)))
    for one in made.values():
        time.at(5, partial(one.attempt, "0.0", "done"))
    with made["prepare"].alive(), made["train"].alive():
        Followed(group, time, said=said)
    assert counts == [0, 1] and said == ["run has not begun, it is pending; waiting for it"]


def test_a_failure_comes_first_at_once(group: Group, runs: dict[str, MadeRun], time: Time) -> None:
    logs = runs["prepare"].begin()
    (logs / "rank-00001.log").write_text("oh no\n")

    def fails() -> None:
        runs["prepare"].fail(1)
        (logs / "rank-00000.log").write_text("killed\n")

    time.at(2.6, fails)
    time.at(8, lambda: runs["prepare"].end(ending="failed", code=1))
    for run in (runs["train"], runs["evaluate"]):
        time.at(9, run.begin)
        time.at(10, run.end)
    followed = Followed(group, time)
    assert followed.lines[1].startswith("--- prepare: rank 1 on x1 failed first: exit code 1")
    assert followed.lines[-1] == "[prepare:0] killed"
    assert followed.ends[0] == ("prepare", "failed")


def test_records_are_read_together(
    group: Group, runs: dict[str, MadeRun], time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many runs are followed, none is asked about alone."""
    asked: list[int] = []

    def counting(found: list[MadeRun], poller: object) -> object:
        asked.append(len(found))
        return watch.statuses(found, poller)  # type: ignore[arg-type]

    monkeypatch.setattr("castoff.launcher.logs.group_following.statuses", counting)
    for run in runs.values():
        run.begin()
        time.at(10, run.end)
    Followed(group, time)
    assert set(asked) == {3} and len(asked) < 10 / 0.5 + 5
