"""Following a run to its end, in a time of the test's own."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.logs import following
from castoff.launcher.logs.show import Json, Text
from castoff.launcher.logs.sources import Log
from castoff.launcher.runs.states import MemberStatus, RunStatus
from castoff.launcher.status import watch
from castoff.launcher.status.poller import Poller

from .conftest import Followed, MadeRun, Time

Follow = Callable[..., Followed]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def rank(folder: Path, number: int) -> Path:
    return folder / f"rank-{number:05d}.log"


class TestEnds:
    def test_when_its_attempt_has_an_ending(self, made: MadeRun, time: Time, follow: Follow) -> None:
        logs = made.begin()
        append(rank(logs, 0), "one\n")
        time.at(2, lambda: append(rank(logs, 0), "two\n"))
        time.at(3, lambda: append(rank(logs, 1), "late\n"))
        time.at(5, lambda: made.end(code=3, ending="failed"))
        followed = follow(made)
        assert followed.lines == ["[0] one", "[0] two", "[1] late"]
        assert (followed.end.ending, followed.end.code, followed.end.failed) == ("failed", 3, None)
        assert followed.said == ["run: castoff cannot query its scheduler; Ctrl-C stops following the run"]

    def test_one_that_is_over(self, made: MadeRun, follow: Follow) -> None:
        append(rank(made.begin(), 0), "one\nhalf")
        made.end()
        followed = follow(made)
        assert followed.lines == ["[0] one", "[0] half"]
        assert (followed.end.ending, followed.end.code, followed.said) == ("done", 0, [])

    def test_not_between_two_attempts(self, made: MadeRun, time: Time, follow: Follow) -> None:
        append(rank(made.begin(), 0), "first\n")
        made.end(ending="resume")
        time.at(60, lambda: append(rank(made.begin("0.1"), 0), "second\n"))
        time.at(90, lambda: made.end("0.1"))
        followed = follow(made)
        assert followed.lines == ["[0] first", "[0] second"]
        assert followed.end.ending == "done"
        assert followed.said == ["run: castoff cannot query its scheduler; Ctrl-C stops following the run"]

    def test_not_between_two_starts_by_hand(self, made: MadeRun, time: Time, follow: Follow) -> None:
        made.record("plan.json", {"name": "made", "scheduler": "local", "launcher": "local"})
        (made.path / "submission.json").unlink()
        made.begin()
        append(made.script_log(), "[0] first\n")
        made.end(ending="resume")
        time.at(60, lambda: made.begin("0.1"))
        time.at(61, lambda: append(made.script_log(), "[0] second\n"))
        time.at(90, lambda: made.end("0.1"))
        followed = follow(made)
        assert followed.lines == ["[0] first", "[0] second"]
        assert followed.said[0] == "run: stopped early; waiting for its next attempt"

    def test_only_when_all_members_have(self, tmp_path: Path, time: Time, follow: Follow) -> None:
        made = MadeRun(tmp_path / "array", members=2)
        append(rank(made.begin("1.0"), 0), "one\n")
        made.end("1.0")
        time.at(60, lambda: append(rank(made.begin("0.0"), 0), "zero\n"))
        time.at(61, lambda: made.end("0.0", ending="failed", code=5))
        followed = follow(made, Text(several=True, terminal=False, colours=False))
        assert followed.lines == ["[1.0:0] one", "[0.0:0] zero"]
        assert (followed.end.ending, followed.end.code) == ("failed", 5)

    def test_what_was_asked_for_is_enough(self, tmp_path: Path, time: Time, follow: Follow) -> None:
        made = MadeRun(tmp_path / "array", members=3)
        for member in (0, 1):
            append(rank(made.begin(f"{member}.0"), 0), f"member {member}\n")
        made.end("1.0", ending="walltime", code=75)
        followed = follow(made, members=frozenset([1]))
        assert followed.lines == ["[0] member 1"]
        assert (followed.end.ending, followed.end.code) == ("walltime", 75)
        made.end("0.0", ending="resume")
        made.begin("0.1")
        followed = follow(made, members=frozenset([0]), attempt=0)
        assert followed.lines == ["[0] member 0"]
        assert (followed.end.ending, followed.end.code) == ("resume", 0)

    def test_a_log_that_cannot_be_read_is_reported_once(
        self, made: MadeRun, time: Time, follow: Follow
    ) -> None:
        log = rank(made.begin(), 0)
        log.mkdir()
        time.at(3, made.end)
        assert follow(made).said.count(f"{log}: cannot be read: Is a directory; trying again") == 1

    def test_what_comes_into_sight_after_the_ending(self, made: MadeRun, time: Time, follow: Follow) -> None:
        """As on a network file system."""
        logs = made.begin()
        append(rank(logs, 0), "one\n")
        made.end()
        time.at(0.05, lambda: append(rank(logs, 0), "two\n"))
        assert follow(made).lines == ["[0] one", "[0] two"]

    def test_where_no_rank_began_with_the_launchers_words(
        self, made: MadeRun, time: Time, follow: Follow
    ) -> None:
        made.begin()
        append(made.script_log(), "srun: unrecognized option '--no'\nTry \"srun --help\"\n")
        time.at(2, lambda: made.end(code=255, ending="failed"))
        followed = follow(made)
        assert followed.lines[0] == followed.end.reason == "srun: unrecognized option '--no'"


class TestFailure:
    TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\n'

    def test_it_comes_before_the_noise_of_its_victims(
        self, made: MadeRun, time: Time, follow: Follow
    ) -> None:
        logs = made.begin()
        for number in range(4):
            append(rank(logs, number), f"epoch 1 of {number}\n")

        def fail() -> None:
            for number in (0, 1, 3):
                append(rank(logs, number), "Connection closed by peer\n")
            append(rank(logs, 2), self.TRACEBACK)
            made.fail(2)

        time.at(5, fail)
        time.at(6, lambda: append(rank(logs, 1), "last words\n"))
        time.at(7, lambda: made.end(ending="failed", code=1))
        followed = follow(made)
        header = followed.lines.index("--- rank 2 on x1 failed first: exit code 1 ---")
        noise = [number for number, line in enumerate(followed.lines) if "closed by peer" in line]
        assert followed.lines[header + 1 : header + 5] == [*self.TRACEBACK.splitlines(), "--- all ranks ---"]
        assert len(noise) == 3 and header < min(noise)
        assert sum("---" in line for line in followed.lines) == 2
        assert followed.lines[-1] == "[1] last words"
        assert followed.end.failed is not None and followed.end.failed.log == rank(logs, 2)

    def test_its_traceback_is_shown_once(self, made: MadeRun, time: Time, follow: Follow) -> None:
        """Also where its log was read before the failure was on record."""
        made.record("plan.json", {"name": "made", "scheduler": "pbs", "launcher": "local"})
        append(rank(made.begin(), 2), self.TRACEBACK)
        traceback = "".join(f"[2] {line}\n" for line in self.TRACEBACK.splitlines())
        time.at(5, lambda: append(made.script_log(), traceback))
        time.at(9, lambda: made.fail(2))
        time.at(15, lambda: made.end(ending="failed", code=1))
        assert follow(made).lines == [
            *traceback.splitlines(),
            "--- rank 2 on x1 failed first: exit code 1 ---",
            "ValueError: no (shown above)",
            "--- all ranks ---",
        ]

    def test_where_all_hung_it_is_the_stack_of_the_one_that_differs(
        self, made: MadeRun, follow: Follow
    ) -> None:
        logs = made.begin()
        append(rank(logs, 3), "epoch 1\n")
        (logs / "stacks").mkdir()
        append(logs / "stacks" / "rank-00003.txt", "Thread 1\n  at read\n" + "  deep\n" * 99)
        made.fail(3, log="rank-00003.log", reason="hang")
        made.end(ending="failed", code=1)
        lines = follow(made).lines
        assert lines[:3] == ["--- rank 3 on x1 hung ---", "Thread 1", "  at read"]
        assert lines[61:] == [
            f"… 41 lines are not shown here: {logs}/stacks/rank-00003.txt",
            f"all ranks' stacks: {logs}/stacks",
            "--- all ranks ---",
            "[3] epoch 1",
        ]

    def test_where_the_one_that_hung_wrote_no_stack_those_of_the_others_are_named(
        self, made: MadeRun, follow: Follow
    ) -> None:
        logs = made.begin()
        (logs / "stacks").mkdir()
        append(logs / "stacks" / "rank-00000.txt", "Thread 1\n  at all_reduce\n")
        made.fail(3, log="rank-00003.log", reason="hang")
        made.end(ending="failed", code=1)
        stacks = f"all ranks' stacks: {logs}/stacks"
        assert follow(made).lines == ["--- rank 3 on x1 hung ---", stacks, "--- all ranks ---"]

    def test_of_an_attempt_long_past_only_its_lines(self, made: MadeRun, follow: Follow) -> None:
        append(rank(made.begin(), 0), self.TRACEBACK)
        made.fail(0)
        made.end(ending="failed", code=1)
        made.begin("0.1")
        made.end("0.1")
        followed = follow(made)
        assert followed.lines == [f"[0] {line}" for line in self.TRACEBACK.splitlines()]
        assert followed.end.ending == "done" and followed.end.failed is None

    def test_of_several_members_the_first_comes_first(self, tmp_path: Path, follow: Follow) -> None:
        made = MadeRun(tmp_path / "array", members=2)
        for member in (0, 1):
            append(rank(made.begin(f"{member}.0"), 0), f"broken {member}\n")
            made.fail(0, f"{member}.0", time=1005 - member)
            made.end(f"{member}.0", "failed", 1)
        followed = follow(made, Text(several=True, terminal=False, colours=False))
        assert followed.lines[:5:3] == [
            "--- 1.0: rank 0 on x1 failed first: exit code 1 ---",
            "--- 0.0: rank 0 on x1 failed first: exit code 1 ---",
        ]
        assert followed.end.failed is not None and followed.end.failed.failure.time == 1004

    def test_that_is_not_wholly_written_yet(self, made: MadeRun, time: Time, follow: Follow) -> None:
        made.begin()
        path = made.path / "attempts" / "0.0" / "failure.json"
        path.write_text('{"rank": 2, "ho')
        time.at(3, lambda: made.fail(2))
        time.at(4, lambda: made.end(ending="failed", code=1))
        assert follow(made).lines[0] == "--- rank 2 on x1 failed first: exit code 1 ---"

    def test_without_a_rank_or_a_log(self, made: MadeRun, follow: Follow) -> None:
        made.begin()
        made.fail(None, log="../../../etc/passwd")
        made.end(ending="failed", code=1)
        assert follow(made).lines == ["--- a rank on x1 failed first: exit code 1 ---", "--- all ranks ---"]

    def test_of_a_node_s_log(self, made: MadeRun, follow: Follow) -> None:
        logs = made.begin()
        append(logs / "node-00001.log", self.TRACEBACK)
        made.fail(None, log="node-00001.log")
        made.end(ending="failed", code=1)
        lines = follow(made).lines
        assert lines[1:4] == self.TRACEBACK.splitlines()
        assert lines[5:] == ["[node 1] ValueError: no (shown above)"]


class TestSelection:
    def test_ranks(self, made: MadeRun, follow: Follow) -> None:
        logs = made.begin()
        for number in range(4):
            append(rank(logs, number), f"of {number}\n")
        append(made.script_log(), "setup\n")
        made.fail(2)
        made.end(ending="failed", code=1)
        assert follow(made, ranks=frozenset([1, 3])).lines == ["[1] of 1", "[3] of 3"]

    def test_the_last_lines_and_what_comes(self, made: MadeRun, time: Time, follow: Follow) -> None:
        logs = made.begin()
        for number in range(2):
            append(rank(logs, number), "".join(f"{number} {line}\n" for line in range(10)))
        time.at(3, lambda: append(rank(logs, 1), "new\n"))
        time.at(4, made.end)
        time.at(3, lambda: append(rank(logs, 2), "2 0\n2 1\n"))  # which is new as a whole
        assert follow(made, tail=1).lines == ["[0] 0 9", "[1] 1 9", "[1] new", "[2] 2 0", "[2] 2 1"]

    def test_for_programs(self, made: MadeRun, follow: Follow) -> None:
        append(rank(made.begin(), 7), "one\n")
        made.fail(7)
        made.end(ending="failed", code=1)
        reported = [json.loads(line) for line in follow(made, Json()).lines]
        assert [one["event"] for one in reported] == ["failure", "line"]
        assert (reported[1]["rank"], reported[1]["text"]) == (7, "one")


class TestScript:
    def test_its_own_lines_come_beside_those_of_the_ranks(
        self, made: MadeRun, time: Time, follow: Follow
    ) -> None:
        logs = made.begin()
        append(made.script_log(), "Loading module frameworks\none\n")
        append(rank(logs, 0), "one\n")
        append(rank(logs, 1), "other\n")
        time.at(5, lambda: append(rank(logs, 0), "two\n"))
        time.at(5.2, lambda: append(made.script_log(), "two\nslurmstepd: error: DUE TO TIME LIMIT\n"))
        time.at(9, made.end)
        lines = follow(made).lines
        assert Counter(lines) == Counter(
            [
                *("Loading module frameworks", "[0] one", "[1] other", "[0] two"),
                "slurmstepd: error: DUE TO TIME LIMIT",
            ]
        )

    def test_a_log_that_the_scheduler_brings_in_the_end(
        self, made: MadeRun, time: Time, follow: Follow
    ) -> None:
        logs = made.begin()
        append(rank(logs, 0), "one\n")
        append(rank(logs, 3), "broken\n")
        made.fail(3)
        word = "castoff: rank 3 on x1 failed first: exit code 1; see /logs/0.0/rank-00003.log"
        time.at(3, lambda: append(made.script_log(), f"setup\none\n{word}\nbroken\n"))
        time.at(3, lambda: made.end(ending="failed", code=1))
        lines = follow(made).lines
        assert lines[-2:] == ["setup", word] and lines.count("[0] one") == 1


class TestMany:
    """256 logs: what is done, not how long it takes."""

    @pytest.fixture
    def opened(self, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
        calls: Counter[str] = Counter()
        real = os.open

        def count(path: Any, *args: Any, **kwargs: Any) -> int:
            calls[Path(os.fspath(path)).name[:4]] += 1
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, "open", count)
        return calls

    def test_at_rest_they_are_looked_at_seldom(
        self, made: MadeRun, time: Time, follow: Follow, opened: Counter[str]
    ) -> None:
        logs = made.begin()
        for number in range(256):
            append(rank(logs, number), f"{number}\n")
        time.at(60, made.end)
        assert sorted(follow(made).lines) == sorted(f"[{number}] {number}" for number in range(256))
        assert opened["rank"] < 60 * 256  # once a second or less
        assert time.pauses < 60 * 12

    def test_none_is_left_behind(self, made: MadeRun, time: Time, follow: Follow) -> None:
        """All of them grow between two looks, one by much more than is read of a log at a time."""
        logs = made.begin()
        expected: Counter[str] = Counter()

        def write(step: int) -> None:
            for number in range(256):
                lines = [f"{step} {line}" for line in range(20_000 if number == 7 else 3)]
                append(rank(logs, number), "".join(f"{line}\n" for line in lines))
                expected.update(f"[{number}] {line}" for line in lines)

        for step in range(5):
            time.at(1 + step / 10, lambda step=step: write(step))  # type: ignore[misc]
        time.at(4, made.end)
        lines = follow(made).lines
        assert Counter(lines) == expected
        mine = [line for line in lines if line.startswith("[7] ")]
        assert mine == [f"[7] {step} {line}" for step in range(5) for line in range(20_000)]

    def test_an_array_s_ended_members_cost_nothing(
        self, tmp_path: Path, time: Time, follow: Follow, opened: Counter[str]
    ) -> None:
        made = MadeRun(tmp_path / "array", members=50)
        for member in range(50):
            append(rank(made.begin(f"{member}.0"), 0), "x\n")
            if member:
                made.end(f"{member}.0")
        time.at(60, lambda: made.end("0.0"))
        assert len(follow(made).lines) == 50
        assert opened["rank"] < 50 * 10 + 60 * 8

    def test_each_log_is_looked_at_once_when_members_end(
        self, tmp_path: Path, time: Time, follow: Follow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: Counter[str] = Counter()

        def of(log: Log) -> Any:
            calls["of"] += 1
            return log.__dict__["of"]

        monkeypatch.setattr(
            Log, "of", property(of, lambda log, of: log.__dict__.update(of=of)), raising=False
        )
        counts = []
        for members in (20, 80):
            made, before = MadeRun(tmp_path / f"array-{members}", members=members), calls["of"]
            for member in range(members):
                append(rank(made.begin(f"{member}.0"), 0), "x\n")
                made.end(f"{member}.0")
            assert len(follow(made).lines) == members
            counts.append((calls["of"] - before) / members)
        assert counts[1] < counts[0] + 1

    def test_with_few_descriptors(self, made: MadeRun, follow: Follow) -> None:
        import resource

        logs = made.begin()
        for number in range(256):
            append(rank(logs, number), f"{number}\n")
        made.end()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 10, before[1]))
        try:
            assert len(follow(made).lines) == 256
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_run_that_waits(made: MadeRun, time: Time, follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so once, and on whom it waits."""
    made.record("plan.json", {"name": "made", "scheduler": "local", "launcher": "local"})
    made.record("submission.json", {"job": "local-1", "after": {"afterok": ["/runs/first-1"]}})
    alive = [True]
    monkeypatch.setattr("castoff.launcher.status.survey.is_alive", lambda run: alive[0])

    def begin() -> None:
        made.begin()
        append(made.script_log(), "[0] one\n")

    def end() -> None:
        made.end()
        alive[0] = False

    time.at(5, begin)
    time.at(9, end)
    followed = follow(made)
    assert followed.said == ["run has not begun: it waits for afterok of first-1; waiting for it"]
    assert followed.lines == ["[0] one"] and followed.end.code == 0


def test_a_script_that_runs_and_has_written_nothing(
    made: MadeRun, time: Time, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[bool] = []
    made.record("plan.json", {"name": "made", "scheduler": "local", "launcher": "local"})
    made.record("submission.json", {"job": "local-1"})
    monkeypatch.setattr("castoff.launcher.status.survey.is_alive", lambda run: not over)
    monkeypatch.setattr(
        "castoff.launcher.logs.following.status", lambda run, poller: as_running(watch.status(run, poller))
    )
    time.at(5, made.begin)
    time.at(9, made.end)
    time.at(9, lambda: over.append(True))
    followed = follow(made)
    assert followed.said[0] == "run is running, and its script has written nothing yet; waiting for it"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("it is held", "its next attempt has not begun: it is held"),
        ("its next attempt is about to begin", "its next attempt is about to begin"),
    ],
)
def test_why_the_next_attempt_waits(
    reason: str, words: str, made: MadeRun, time: Time, follow: Follow
) -> None:
    """After a resubmission of a job that is held, for one."""
    made.begin()
    made.end(ending="cancelled", code=143)
    over = watch.status(made, Poller())
    held = msgspec.structs.replace(over, state="pending", ending=None, reason=reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("castoff.launcher.logs.following.status", lambda *_: over if time.now > 1005 else held)
        said = follow(made).said
    assert said[0] == f"run: {words}; waiting for it"


def test_when_it_is_expected_to_start(made: MadeRun, time: Time, follow: Follow) -> None:
    """By its scheduler, which may have an estimate."""
    made.begin()
    made.end()
    over = watch.status(made, Poller())
    at = datetime(2026, 11, 28, 10, 20, 30)
    member = MemberStatus(0, "pending", None, [], "others come first", expected_start=at.timestamp())
    waits = msgspec.structs.replace(
        over, state="pending", ending=None, reason="others come first", members=[member]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("castoff.launcher.logs.following.status", lambda *_: over if time.now > 1005 else waits)
        said = follow(made).said
    words = "others come first; expected to start at about 2026-11-28 10:20:30; waiting for it"
    assert said[0] == f"run has not begun: {words}"


def as_running(now: RunStatus) -> RunStatus:
    """As a scheduler sees it, which knows of a start before its script."""
    return now if now.state == "ended" else msgspec.structs.replace(now, state="running")


def test_a_scheduler_that_was_killed(made: MadeRun, follow: Follow) -> None:
    made.record("plan.json", {"name": "made", "scheduler": "local", "launcher": "local"})
    made.record("submission.json", {"job": "local-1"})
    made.begin()
    append(made.script_log(), "[0] one\n")
    followed = follow(made)
    assert followed.lines == ["[0] one"]
    assert (followed.end.ending, followed.end.code) == ("unknown", None)
    assert followed.end.reason is not None and "castoff does not guess" in followed.end.reason


def test_a_directory_that_disappears_is_reported(made: MadeRun, time: Time, follow: Follow) -> None:
    made.begin()
    time.at(3, lambda: made.path.rename(made.path.with_name("moved")))
    with pytest.raises(CastoffError, match="/run: is gone; if it was moved, name its new path"):
        follow(made)


def test_a_scheduler_that_once_did_not_answer_does_not_hide_the_end(
    made: MadeRun, time: Time, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience, survey = [30.0, 0.0], watch.status

    def slow(*words: Any) -> Any:
        found = survey(*words)
        time.now += patience.pop() if patience else 0
        return found

    monkeypatch.setattr(following, "status", slow)
    made.begin()
    time.at(32, made.end)
    assert follow(made).end.code == 0
    assert time.now < 1060
