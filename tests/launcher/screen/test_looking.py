"""Looks at runs in threads: what they bring, how often they ask, and what happens if nobody answers."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from bench.many_runs import make_runs
from castoff.launcher.history import metric_lines
from castoff.launcher.history.progress import Progress
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.screen import looking
from castoff.launcher.screen.looking import NEWEST, Looker, Opened, Seen
from castoff.launcher.status.poller import Poller
from tests.launcher.status.test_watch import Made
from tests.patience import until

from ..fake_slurm import FakeSlurm, OnSlurm

OFTEN = 0.02


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "state" / "runs.jsonl")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return FakeSlurm(tmp_path, monkeypatch)


@pytest.fixture
def looker(index: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looker]:
    monkeypatch.setattr(looking, "_SHARE", 1)  # else tests on a machine that halts for a minute wait for 20
    one = Looker(index, OFTEN)
    yield one
    one.stop()


def states(seen: Seen) -> list[str]:
    return [item.row.summary.word for item in seen.items]


def seen_when(looker: Looker, holds: Callable[[Seen], object]) -> Seen:
    """What was seen first that is so."""
    found: list[Seen] = []

    def look() -> bool:
        if looker.failure:
            raise looker.failure
        found[:] = [looker.seen]
        return bool(holds(found[0]))

    until(look, f"seen last: {looker.seen}")
    return found[0]


def on_slurm(folder: Path, index: Index, job: str = "7") -> OnSlurm:
    made = OnSlurm(folder, id=f"made-{job}", job=job, sends=[{"job": job, "count": None, "time": 899.0}])
    index.add(made.run, "made")
    return made


def local(folder: Path, index: Index) -> Made:
    made = Made(folder)
    (made.run.path / "job.sh").touch()
    index.add(made.run, "made")
    return made


def report(run: RunDirectory, *lines: Mapping[str, float]) -> None:
    with (run.path / "attempts/0.0/metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_a_run_from_its_start_to_its_end(tmp_path: Path, index: Index, looker: Looker) -> None:
    looker.start()
    assert seen_when(looker, lambda seen: seen.time).items == []
    made = local(tmp_path, index)
    with made.alive():
        seen_when(looker, lambda seen: states(seen) == ["pending"])
        made.attempt("0.0")
        seen_when(looker, lambda seen: states(seen) == ["running"])
        report(
            made.run, *({"step": step, "total_steps": 10, "time": 2000 + step, "loss": 2} for step in (1, 2))
        )
        (item,) = seen_when(looker, lambda seen: seen.items[0].progress and seen.items[0].progress.step).items
        assert item.progress is not None
        assert (item.progress.part, item.progress.pace, item.progress.loss) == (0.2, 1, ("loss", 2))
        report(made.run, {"step": 5, "loss": 1})
        seen_when(looker, lambda seen: _step(seen) == 5)
    made.write("attempts/0.0/ending.json", {"ending": "done", "code": 0, "time": 1010})
    (made.run.path / "attempts/0.0/settled").touch()
    seen_when(looker, lambda seen: states(seen) == ["done"] and _step(seen) == 5)
    shutil.rmtree(made.run.path)
    seen_when(looker, lambda seen: not seen.items)


@pytest.mark.parametrize(("took", "pause"), [(0.0, 2.0), (0.5, 10.0), (90.0, 30.0)])
def test_pauses_grow_with_the_reading_but_not_for_ever(index: Index, took: float, pause: float) -> None:
    assert Looker(index)._pause(took) == pause


def test_a_program_that_has_reported_very_much_holds_up_nothing(
    tmp_path: Path, index: Index, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads a part of its file, and shows nothing of it until then: that would be out of date."""
    monkeypatch.setattr(looking, "_READS", 0.0)
    monkeypatch.setattr(looking, "_TURN", 0.0)
    monkeypatch.setattr(metric_lines, "_BLOCK", 40)  # so one line
    much, little = local(tmp_path / "much", index), local(tmp_path / "little", index)

    def steps() -> tuple[float | None, ...]:
        items = looker._look().items  # one look, which a thread would make again and again
        by_path = {item.path: item.progress.step for item in items if item.progress}
        return tuple(by_path[str(made.run.path)] for made in (much, little))

    with much.alive(), little.alive():
        for made, lines in ((much, 9), (little, 2)):
            made.attempt("0.0")
            report(made.run, *({"step": step, "loss": 1.0} for step in range(lines)))
        seen = [steps() for _ in range(11)]
    assert seen == [(None, None)] * 2 + [(None, 1)] * 7 + [(8, 1)] * 2


def test_running_programs_and_those_with_few_reports_come_first(
    tmp_path: Path, index: Index, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    progress = looker._progress

    def noted(directory: str, since: float, member: int = 0) -> Progress:
        read.append(Path(directory).parent.name)
        return progress(directory, since, member)

    monkeypatch.setattr(looker, "_progress", noted)
    much, little, runs = (local(tmp_path / name, index) for name in ("much", "little", "runs"))
    with runs.alive():
        for made, lines in ((much, 9), (little, 2), (runs, 20)):
            made.attempt("0.0")
            report(made.run, *({"step": step, "loss": 1.0} for step in range(lines)))
        for made in (much, little):
            made.write("attempts/0.0/ending.json", {"ending": "done", "code": 0, "time": 1010})
            (made.run.path / "attempts/0.0/settled").touch()
        items = looker._look().items
    assert read == ["runs", "little", "much"]
    assert [item.progress and item.progress.step for item in items] == [19, 1, 8]


def test_the_newest_that_are_over_or_all(tmp_path: Path, index: Index, looker: Looker) -> None:
    runs = make_runs(tmp_path / "runs", index, NEWEST + 5)
    looker.start()
    seen = seen_when(looker, lambda seen: seen.items)
    assert (len(seen.items), seen.left_out) == (NEWEST, 5)
    assert seen.items[0].path == str(runs[-1].path)
    looker.show_everything(True)
    assert seen_when(looker, lambda seen: len(seen.items) == NEWEST + 5).left_out == 0


def test_one_that_is_opened(tmp_path: Path, index: Index, looker: Looker) -> None:
    """Also one that is over and that the index remembers: it is read for as long as it is open."""
    *_, run = make_runs(tmp_path / "runs", index, 10)
    looker.start()
    assert seen_when(looker, lambda seen: seen.items).detail is None
    looker.open(Opened(str(run.path)))
    detail = seen_when(looker, lambda seen: seen.detail).detail
    assert detail is not None and detail.status.ending == "failed" and detail.trouble is None
    assert detail.excerpt.title == "rank 1 on node7 failed first: exit code 3"
    assert list(detail.excerpt.lines) == ["epoch 1"]
    assert [one.host for one in detail.hosts] == ["node7"] and [one.name for one in detail.phases]
    looker.open(None)
    seen_when(looker, lambda seen: seen.detail is None)


def test_the_end_of_a_log_without_what_moves_a_cursor(tmp_path: Path, index: Index, looker: Looker) -> None:
    run = make_runs(tmp_path / "runs", index, 1)[0]
    lines = [f"line {number}" for number in range(200)]
    text = "\n".join(
        [*lines, "\x1b[31mred\x1b[0m", "10%\r50%\r100%", "\x1b]0;mine\x07title", "\ttab", "unfinished"]
    )
    (run.path / "logs/0.0/rank-00000.log").write_text(text)
    looker.open(Opened(str(run.path)))
    looker.start()
    detail = seen_when(looker, lambda seen: seen.detail).detail
    assert detail is not None and detail.excerpt.title == "the end of rank 0's log"
    assert list(detail.excerpt.lines)[-6:] == [
        "line 199",
        "red",
        "100%",
        "title",
        "        tab",
        "unfinished",
    ]


def test_many_looks_are_one_question(tmp_path: Path, index: Index, looker: Looker, slurm: FakeSlurm) -> None:
    """About all runs, and no sooner again than is allowed, however often files are looked at."""
    runs = [on_slurm(tmp_path, index, str(job)).run for job in (70, 71, 72)]
    slurm.queue.write_text(
        "".join(f"{run.id[-2:]}|N/A|RUNNING|None|900|N/A|N/A|{run.script}\n" for run in runs)
    )
    for run in runs:
        plan = {"name": "made", "site": "big", "scheduler": "slurm", "poll_interval": 3600}
        (run.path / "plan.json").write_text(json.dumps(plan))
    looker.start()
    seen_when(looker, lambda seen: states(seen) == 3 * ["running"])
    for _ in range(20):
        before = looker.seen
        until(lambda: looker.seen is not before)  # noqa: B023
    assert slurm.questions() == ["squeue"]


def test_a_scheduler_that_hangs_holds_up_nothing_else(
    tmp_path: Path, index: Index, looker: Looker, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("castoff.launcher.status.poller._SHORTEST_PAUSE", 0.0)
    monkeypatch.setattr("castoff.launcher.status.poller._LONGEST_PAUSE", 0.0)
    far, near = on_slurm(tmp_path, index), local(tmp_path, index)
    slurm.tells(("7", "PENDING"), run=far.run, reason="Priority")
    with near.alive():
        looker.start()
        seen_when(looker, lambda seen: states(seen) == ["pending", "pending"])
        until(lambda: looker.unanswered() is None, "an answer")  # it is asked again and again
        release = slurm.folder / "release"
        slurm.program("squeue", f"while [ ! -e {release} ]; do sleep 0.02; done; exit 1")
        words = until(looker.unanswered)
        assert words.startswith("Slurm has not answered for ") and "; its runs are shown as of " in words
        near.attempt("0.0")
        seen = seen_when(looker, lambda seen: "running" in states(seen))
        assert sorted(states(seen)) == ["pending", "running"]  # what was known of it still stands
        release.touch()
        until(lambda: "(squeue failed with exit code 1" in (looker.unanswered() or ""))
        assert sorted(states(looker.seen)) == ["pending", "running"]
        slurm.program("squeue", f"cat {slurm.queue}")
        until(lambda: looker.unanswered() is None)
        slurm.tells(("7", "CANCELLED"), run=far.run)
        seen_when(looker, lambda seen: sorted(states(seen)) == ["cancelled", "running"])


def test_a_scheduler_that_never_answered(tmp_path: Path, index: Index, slurm: FakeSlurm) -> None:
    on_slurm(tmp_path, index)
    slurm.program("squeue", "exit 1")
    looker = Looker(index, OFTEN, Poller())
    looker.start()
    try:
        failed = "squeue failed with exit code 1"
        words = until(lambda: words if failed in (words := looker.unanswered() or "") else None)
        assert "shown as of" not in words
        (item,) = seen_when(looker, lambda seen: seen.items and "could not be reached" in _reason(seen)).items
        assert item.row.summary.word == "unknown"
    finally:
        looker.stop()


def _step(seen: Seen) -> float | None:
    progress = seen.items[0].progress
    return progress.step if progress else None


def _reason(seen: Seen) -> str:
    return seen.items[0].row.summary.reason or ""


def test_an_index_that_cannot_be_read(tmp_path: Path, index: Index, looker: Looker) -> None:
    index.path.parent.mkdir(parents=True)
    index.path.mkdir()
    looker.start()
    (note,) = seen_when(looker, lambda seen: seen.notes).notes
    assert str(index.path) in note and "cannot be read" in note
    index.path.rmdir()
    seen_when(looker, lambda seen: not seen.notes)


def test_a_run_that_somebody_begins_again(tmp_path: Path, index: Index, looker: Looker) -> None:
    """What was known of its progress and of its state holds no longer."""
    made = local(tmp_path, index)
    made.attempt("0.0", "failed", 3)
    report(made.run, {"step": 9, "loss": 2})
    looker.start()
    seen_when(looker, lambda seen: states(seen) == ["failed"])
    with made.alive():
        index.reopen(made.run)
        made.write("submission.json", {"job": None, "begin": {"0": 1}, "earlier": [{"job": "local-1"}]})
        seen_when(looker, lambda seen: states(seen) == ["pending"])


def test_it_ends(index: Index) -> None:
    looker = Looker(index, 3600)
    looker.start()
    until(lambda: looker.seen.time)
    threads = [one for one in threading.enumerate() if one.name in ("_look_again", "_ask_again")]
    assert threads
    looker.stop()
    for thread in threads:
        thread.join()


def test_a_look_that_takes_long_is_not_repeated_at_once(
    index: Index, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone else's file system should not be read all the time."""
    waits: list[float] = []
    clock = [0.0]
    done = threading.Event()

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        looker.stop()
        done.set()
        return True

    def slow() -> Seen:
        clock[0] += 3.0
        return Seen(time=time.time())

    monkeypatch.setattr(looker, "_look", slow)
    monkeypatch.setattr(looker._wake, "wait", wait)
    monkeypatch.setattr("castoff.launcher.screen.looking.time.monotonic", lambda: clock[0])
    looker.start()
    assert done.wait(600)
    assert waits[0] == looker._pause(3.0) > OFTEN
