"""What the records of a run mean, from directories made by hand."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.process.locks import locked
from castoff.launcher.runs.records import Failure
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.runs.states import failure_words, members_words, summary
from castoff.launcher.status.watch import poll, status, wait
from castoff.launcher.submission.dependencies import condition_holds


class Made:
    """A run directory in some state."""

    def __init__(self, folder: Path, members: int = 1, **submission: Any):
        self.run = RunDirectory(folder / "run")
        (self.run.path / "attempts").mkdir(parents=True)
        plan = {"name": "made", "site": "local", "scheduler": "local"}
        self.write("plan.json", {**plan, "array_count": members if members > 1 else None})
        self.write("submission.json", {"job": "local-1", **submission})

    def write(self, name: str, record: Any) -> None:
        (self.run.path / name).write_text(json.dumps(record))

    def attempt(self, name: str, ending: str | None = None, code: int = 0, *, settled: bool = True) -> None:
        folder = self.run.path / "attempts" / name
        folder.mkdir()
        self.write(f"attempts/{name}/start.json", {"job": "x", "host": "here", "time": 1000})
        if ending is not None:
            self.write(f"attempts/{name}/ending.json", {"ending": ending, "code": code, "time": 1010})
        if ending is not None and settled:
            (folder / "settled").touch()

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        with locked(self.run.path / LOCK):
            yield


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_who_failed_first() -> None:
    assert failure_words(Failure(3, 1, "n1")) == "rank 1 on n1 failed first: exit code 3"
    assert failure_words(Failure(3, None, "n1")) == "a rank on n1 failed first: exit code 3"
    staging = Failure(1, None, "n1", log="stage.log", program="staging")
    assert failure_words(staging) == "staging on n1 failed first: exit code 1"


def test_pending_then_unknown(made: Made) -> None:
    with made.alive():
        now = status(made.run)
        assert (now.state, now.ending, now.code, now.reason) == ("pending", None, None, None)
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("unknown", "unknown", None)
    assert now.reason is not None and "castoff does not guess" in now.reason


def test_killed_while_it_was_submitted(tmp_path: Path) -> None:
    now = status(Made(tmp_path, job=None).run)
    assert now.state == "unknown"
    assert now.reason == (
        "castoff was killed during the submission, so nothing began; `castoff resubmit run` submits it"
    )


def test_on_another_host(made: Made) -> None:
    """Its locks may not be seen here, so only what its scheduler has settled is believed."""
    made.write("local.json", {"pid": 1, "host": "login7"})
    assert status(made.run).reason == "its scheduler runs, or ran, on login7: ask there"
    made.attempt("0.0", "resume")
    made.attempt("0.1", "done", settled=False)
    now = status(made.run)
    assert (now.state, now.ending, now.code, now.final) == ("unknown", "unknown", None, False)
    (made.run.path / "attempts" / "0.1" / "settled").touch()
    now = status(made.run)
    assert (now.state, now.ending, now.code, now.final) == ("ended", "done", 0, True)
    made.attempt("0.2", "resume")
    (made.run.path / "attempts" / "0.2" / "requeue").touch()
    now = status(made.run)  # it may be about to begin once more
    assert (now.state, now.ending, now.code, now.final) == ("unknown", "unknown", None, False)


def test_an_ending_counts_when_its_scheduler_has_seen_it(made: Made) -> None:
    made.attempt("0.0", "done", settled=False)
    with made.alive():
        assert status(made.run).state == "running"
        assert condition_holds("afterok", made.run) is None
        (made.run.path / "attempts" / "0.0" / "settled").touch()
        assert status(made.run).ending == "done"
    (made.run.path / "attempts" / "0.0" / "settled").unlink()
    assert status(made.run).ending == "done"


def test_between_two_attempts(made: Made) -> None:
    made.attempt("0.0", "resume")
    with made.alive():
        now = status(made.run)
        assert (now.state, now.ending, now.final) == ("ended", "resume", False)  # nothing is to follow
        (made.run.path / "attempts" / "0.0" / "requeue").touch()
        assert status(made.run).state == "pending"
        (made.run.path / "stop").touch()
        assert status(made.run).state == "ended"
        (made.run.path / "stop").unlink()
        made.attempt("0.1")
        assert status(made.run).state == "running"
    assert status(made.run).state == "unknown"


def test_a_stopped_attempt_is_followed_by_none(made: Made) -> None:
    made.attempt("0.0", "resume", 75)
    with made.alive():
        assert status(made.run).ending == "resume"


def test_submitted_again(made: Made) -> None:
    """What has not begun yet is pending; what came before is over, though nobody settled it."""
    made.attempt("0.0", "failed", 3, settled=False)
    made.write("submission.json", {"job": None, "begin": {"0": 1}, "earlier": [{"job": "local-1"}]})
    assert status(made.run).ending == "failed"
    with made.alive():
        now = status(made.run)
        assert (now.state, now.members[0].attempts[0].ending) == ("pending", "failed")
        made.attempt("0.1")
        now = status(made.run)
        assert (now.state, [one.state for one in now.members[0].attempts]) == (
            "running",
            ["ended", "running"],
        )


def test_a_member_that_was_left_alone(tmp_path: Path) -> None:
    made = Made(tmp_path, members=2, begin={"1": 1}, error="refused")
    made.attempt("0.0", "done")
    made.attempt("1.0", "resume", 75)
    now = status(made.run)
    assert [member.ending for member in now.members] == ["done", "resume"]  # what was still is
    assert now.reason == "it could not be submitted: refused"


@pytest.mark.parametrize(
    ("endings", "worst", "code"),
    [
        ([("done", 0), ("failed", 3), ("walltime", 143)], "failed", 3),
        ([("done", 0), ("cancelled", 143), ("done", 0)], "cancelled", 143),
        ([("walltime", 75), ("cancelled", 143)], "walltime", 75),
        ([("done", 0), ("done", 0)], "done", 0),
        ([("done", 0), ("no word of ours", 1)], "unknown", 1),
    ],
)
def test_a_run_ends_as_its_worst_member(
    tmp_path: Path, endings: list[tuple[str, int]], worst: str, code: int
) -> None:
    made = Made(tmp_path, members=len(endings))
    for number, (ending, of) in enumerate(endings):
        made.attempt(f"{number}.0", ending, of)
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("ended", worst, code)


@pytest.mark.parametrize("code", [0, 75])
def test_a_run_that_stopped_early_can_be_resumed(made: Made, code: int) -> None:
    made.attempt("0.0", "resume", code)
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("ended", "resume", 75)
    assert now.reason == "it stopped early and can be resumed: castoff resubmit run"
    assert now.final


def test_asked_to_stop(made: Made) -> None:
    with made.alive():
        assert not status(made.run).stop_requested
        (made.run.path / "stop").touch()
        now = status(made.run)
        assert (now.state, now.stop_requested, summary(now).stop_requested) == ("pending", True, True)
    now = status(made.run)
    assert now.stop_requested and not summary(now).stop_requested


class TestFinal:
    """What a list may remember: what only a resubmission can change."""

    def test_of_a_run_that_castoff_submitted(self, made: Made) -> None:
        assert not status(made.run).final
        made.attempt("0.0", "failed", 3, settled=False)
        with made.alive():
            assert not status(made.run).final
            (made.run.path / "attempts" / "0.0" / "settled").touch()
            now = status(made.run)  # its scheduler may be about to begin it again
            assert now.state == "ended" and not now.final
        assert status(made.run).final

    def test_of_one_that_was_refused(self, tmp_path: Path) -> None:
        now = status(Made(tmp_path, job=None, error="no such queue").run)
        assert (now.state, now.ending, now.code, now.final) == ("ended", "failed", 1, True)
        assert now.reason == "it could not be submitted: no such queue"

    def test_a_refused_resubmission_leaves_what_was(self, tmp_path: Path) -> None:
        made = Made(tmp_path, job=None, error="no such queue")
        made.attempt("0.0", "resume", 75)
        assert status(made.run).ending == "resume"

    @pytest.mark.parametrize(
        ("ending", "ago", "final"),
        [("done", 7200, True), ("failed", 7200, True), ("resume", 7200, False), ("done", 60, False)],
    )
    def test_of_a_script_submitted_without_castoff(
        self, made: Made, ending: str, ago: float, final: bool
    ) -> None:
        """Its scheduler may still start it again: nobody here could know."""
        (made.run.path / "submission.json").unlink()
        made.attempt("0.0", ending)
        made.write("attempts/0.0/ending.json", {"ending": ending, "code": 0, "time": time.time() - ago})
        now = status(made.run)
        assert (now.state, now.ending, now.final, now.job) == ("ended", ending, final, "x")
        if ending == "resume":
            assert now.reason is not None
            assert now.reason.endswith("so only the scheduler of job x knows whether it does")

    def test_an_array_submitted_without_castoff(self, tmp_path: Path) -> None:
        """The members that have not begun count too: the script tells how many there are."""
        made = Made(tmp_path)
        for name in ("plan.json", "submission.json"):
            (made.run.path / name).unlink()
        text = "#SBATCH --array=0-1\n\n# sweep on big: 4 ranks\nexport CASTOFF_ARRAY_COUNT=2\n"
        text += "# === castoff for slurm\n"
        made.run.script.write_text(text)
        made.attempt("0.0", "done")
        now = status(made.run)
        assert (now.name, now.site, now.scheduler, now.state) == ("sweep", "big", "slurm", "unknown")
        assert [member.state for member in now.members] == ["ended", "unknown"]


def test_in_one_line(tmp_path: Path) -> None:
    made = Made(tmp_path, members=3, time=900.5)
    made.attempt("0.0", "resume")
    made.attempt("0.1", "done")
    made.attempt("1.0", "failed", 3)
    with made.alive():
        reported = summary(status(made.run))
        assert (reported.state, reported.ending, reported.ended) == ("running", None, None)
        assert reported.counts == {"done": 1, "failed": 1, "pending": 1}
        assert members_words(reported.counts) == "1/3 done, 1 failed, 1 pending"
        assert (reported.members, reported.attempts, reported.submitted, reported.started) == (
            3,
            3,
            900.5,
            1000,
        )
    made.attempt("2.0", "done")
    reported = summary(status(made.run))
    assert (reported.state, reported.ending, reported.code, reported.ended) == ("ended", "failed", 3, 1010)
    assert members_words(reported.counts) == "2/3 done, 1 failed"


def test_a_directory_that_vanishes(made: Made) -> None:
    made.attempt("0.0", "done")
    shutil.rmtree(made.run.path / "attempts")
    assert status(made.run).state == "unknown"
    shutil.rmtree(made.run.path)
    now = status(made.run)
    assert (now.state, now.reason, now.final) == ("unknown", "its directory is gone", False)


@pytest.mark.parametrize("name", [".", "attempts", "attempts/0.0"])
def test_a_folder_that_may_not_be_read(made: Made, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attempt("0.0", "done")
    real = os.listdir

    def listdir(path: Path) -> list[str]:
        if path == made.run.path / name:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    with pytest.raises(CastoffError, match="cannot be read: Permission denied"):
        status(made.run)


def test_members_in_every_state(tmp_path: Path) -> None:
    made = Made(tmp_path, members=3)
    made.attempt("0.0", "done")
    with made.alive():
        assert status(made.run).state == "running"
        assert [member.state for member in status(made.run).members] == ["ended", "pending", "pending"]
    now = status(made.run)
    assert (now.state, now.ending, now.code) == ("unknown", "unknown", None)


def test_the_tenth_attempt_comes_after_the_ninth(made: Made) -> None:
    for number in (10, 9, 2):
        made.attempt(f"0.{number}", "done" if number == 10 else "resume")
    now = status(made.run)
    assert [attempt.attempt for attempt in now.members[0].attempts] == [2, 9, 10]
    assert now.ending == "done"


def test_what_else_lies_there(made: Made) -> None:
    made.attempt("0.0", "done")
    for name in ("x.y", "0.-1", ".0.0", "1.²", "0.0.swp"):
        (made.run.path / "attempts" / name).touch()
    assert len(status(made.run).members) == 1


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"rank": 3, "host": "n1", "code": 9, "signal": None}, "rank 3 on n1 failed first: exit code 9"),
        (
            {"rank": 0, "host": "n1", "code": 137, "signal": "SIGKILL"},
            "rank 0 on n1 failed first: killed by SIGKILL",
        ),
        (
            {"rank": 0, "host": "n1", "code": 137, "signal": "SIGKILL", "reason": "out-of-memory"},
            "rank 0 on n1 failed first: killed by SIGKILL, out of memory",
        ),
        ({"rank": None, "host": "n1", "code": 1}, "a rank on n1 failed first: exit code 1"),
        (
            {"rank": None, "program": "torchrun", "host": "n1", "code": 1},
            "torchrun on n1 failed first: exit code 1",
        ),
        (
            {"rank": None, "program": "driver", "host": "n1", "code": 1},
            "the driver on n1 failed: exit code 1",
        ),
        (
            {"rank": None, "program": "script", "host": "n1", "code": 143, "signal": "SIGTERM"},
            "the script on n1 failed: killed by SIGTERM",
        ),
    ],
)
def test_the_first_failure(made: Made, record: dict[str, Any], words: str) -> None:
    made.attempt("0.0", "failed", 9)
    made.write("attempts/0.0/failure.json", record)
    failure = status(made.run).members[0].attempts[0].failure
    assert failure is not None and failure_words(failure) == words


def test_a_dependency_on_what_is_gone(tmp_path: Path) -> None:
    gone = RunDirectory(tmp_path / "gone")
    assert condition_holds("afterok", gone) is False
    assert condition_holds("afterany", gone) is True


def test_a_dependency_on_what_may_not_be_trusted(made: Made, tmp_path: Path) -> None:
    made.attempt("0.0", "done")
    assert condition_holds("afterok", made.run) is True
    made.run.path.symlink_to(made.run.path.rename(tmp_path / "moved"))  # while it is waited for
    assert condition_holds("afterok", made.run) is False
    assert condition_holds("afterany", made.run) is False


def test_looks_until_all_are_over(made: Made, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Made(tmp_path / "other")
    other.attempt("0.0", "done")
    with made.alive():
        looked = poll([made.run, other.run])
        assert [one.state for one in next(looked)] == ["pending", "ended"]
        assert [one.state for one in next(looked)] == ["pending", "ended"]
    made.attempt("0.0", "done")
    assert [[one.state for one in now] for now in looked] == [["ended", "ended"]]


@pytest.mark.parametrize(("cost", "longest"), [(0.0, 2.0), (0.5, 10.0)])
def test_looks_grow_rarer(made: Made, monkeypatch: pytest.MonkeyPatch, cost: float, longest: float) -> None:
    clock = [0.0]
    spent = itertools.count()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "process_time", lambda: next(spent) * cost)
    with made.alive():
        assert wait(made.run, timeout=1000).state == "pending"
    assert pauses[0] == 0.2 and max(pauses) == longest and sum(pauses) == pytest.approx(1000)


def test_waiting_has_an_end(made: Made) -> None:
    with made.alive():
        assert wait(made.run, timeout=0.1).state == "pending"
    assert wait(made.run).over
