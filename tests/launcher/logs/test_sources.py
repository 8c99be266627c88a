"""Each log of a run as lines: whole, once and in order, whatever happens to the file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.launchers.local.streams import LINE_LIMIT
from castoff.launcher.logs.lines import Source
from castoff.launcher.logs.show import LINE_PATIENCE
from castoff.launcher.logs.sources import Log, ScriptLog, Selection, rank_log, rank_logs
from castoff.launcher.runs.run import begun_attempts

from .conftest import MadeRun, plain


def drained(log: Log, now: float = 0.0) -> bytes:
    shown = log.poll(now)
    while log.grown:
        shown += log.poll(now)
    return shown


WRITES = st.tuples(
    st.integers(0, 2), st.sampled_from(["write", "look"]), st.text("ab\n", max_size=12).map(str.encode)
)


@given(st.lists(WRITES, max_size=40))
def test_each_line_of_each_rank_once_whole_and_in_order(steps: list[tuple[int, str, bytes]]) -> None:
    """Three ranks write pieces of lines, and are looked at, in any order."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"rank-{rank:05d}.log" for rank in range(3)]
        logs = [
            rank_log(Source(0, 0, rank=rank), path, Selection(), plain()) for rank, path in enumerate(paths)
        ]
        written = [b"", b"", b""]
        shown = b""
        for rank, step, text in steps:
            if step == "write":
                with paths[rank].open("ab") as file:
                    file.write(text)
                written[rank] += text
            else:
                shown += drained(logs[rank])
        shown += b"".join(drained(log) + log.finish() for log in logs)
        for rank, text in enumerate(written):
            label = b"[%d] " % rank
            mine = [line[len(label) :] for line in shown.split(b"\n") if line.startswith(label)]
            assert mine == (text.removesuffix(b"\n").split(b"\n") if text else [])
        assert all(line[:1] == b"[" for line in shown.split(b"\n")[:-1])


class TestLog:
    def log(self, folder: Path, text: bytes = b"") -> tuple[Log, Path]:
        path = folder / "rank-00003.log"
        path.write_bytes(text)
        return rank_log(Source(0, 0, rank=3), path, Selection(), plain()), path

    def test_one_that_is_emptied_begins_a_line(self, tmp_path: Path) -> None:
        log, path = self.log(tmp_path, b"whole\nhalf")
        assert log.poll(0.0) == b"[3] whole\n"
        path.write_bytes(b"new\n")
        assert log.poll(0.0) == b"[3] half\n[3] new\n"

    def test_half_a_line_waits_and_is_shown_in_the_end(self, tmp_path: Path) -> None:
        log, path = self.log(tmp_path, b"one\nhal")
        assert log.poll(0.0) == b"[3] one\n"
        assert log.poll(LINE_PATIENCE - 0.1) == b""
        path.write_bytes(b"one\nhalf\nprompt: ")
        assert log.poll(LINE_PATIENCE) == b"[3] half\n"
        assert log.poll(2 * LINE_PATIENCE) == b"[3] prompt: \n"
        path.write_bytes(b"one\nhalf\nprompt: yes\n")
        assert log.poll(2 * LINE_PATIENCE) == b"[3] yes\n"
        assert log.finish() == b""

    def test_of_a_progress_bar_the_last_state(self, tmp_path: Path) -> None:
        log, _ = self.log(tmp_path, b"\r10%\r50%\r100%\nnext\r\n")
        assert log.poll(0.0) == b"[3] 100%\n[3] next\n"

    def test_bytes_are_left_as_they_are(self, tmp_path: Path) -> None:
        log, _ = self.log(tmp_path, b"\xff\xfe \x1b[31m \0\n")
        assert log.poll(0.0) == b"[3] \xff\xfe \x1b[31m \0\n"

    def test_a_line_of_many_megabytes_comes_in_pieces(self, tmp_path: Path) -> None:
        log, _ = self.log(tmp_path, b"x" * 5_000_000 + b"\nnext\n")
        shown = drained(log).split(b"\n")
        assert {len(piece) for piece in shown[:-3]} == {LINE_LIMIT + len("[3] ")}
        assert b"".join(piece[4:] for piece in shown[:-2]) == b"x" * 5_000_000 and shown[-2] == b"[3] next"

    def test_a_log_that_cannot_be_read_is_reported(self, tmp_path: Path) -> None:
        log, path = self.log(tmp_path)
        assert log.poll(0.0) == b"" and log.trouble is None
        path.unlink()
        path.mkdir()
        (path / "x").touch()
        assert log.poll(0.0) == b"" and log.trouble == f"{path}: cannot be read: Is a directory"


@pytest.fixture
def script(made: MadeRun) -> Path:
    made.begin("0.0")
    return made.script_log()


class TestMergedLines:
    TEXT = b"setup\n[0] a\ncastoff: attempt 1 begins\nsetup\n[0] b\n[1] c\n"

    @pytest.fixture(autouse=True)
    def on_one_machine(self, made: MadeRun) -> None:
        made.record("plan.json", {"name": "made", "scheduler": "local", "launcher": "local"})

    def shown(self, made: MadeRun, **selection: object) -> bytes:
        attempts = begun_attempts(made).get(0, [])
        log = ScriptLog(made, made.facts(), 0, attempts, Selection(**selection), plain())  # type: ignore[arg-type]
        return drained(log) + log.finish()

    def test_all_attempts_or_one(self, made: MadeRun, script: Path) -> None:
        made.begin("0.1")
        script.write_bytes(self.TEXT)
        assert self.shown(made) == self.TEXT
        assert self.shown(made, attempt=0) == b"setup\n[0] a\n"
        assert self.shown(made, attempt=1) == self.TEXT[len(b"setup\n[0] a\n") :]
        assert self.shown(made, attempt=2) == b""

    def test_its_end_is_of_the_attempt_that_it_is_of(self, made: MadeRun, script: Path) -> None:
        made.begin("0.1")
        script.write_bytes(self.TEXT)
        assert self.shown(made, attempt=1, tail=2) == b"[0] b\n[1] c\n"
        assert self.shown(made, attempt=0, tail=2) == b""
        assert self.shown(made, attempt=0, tail=5) == b"[0] a\n"
        assert self.shown(made, attempt=1, tail=5) == self.TEXT[len(b"setup\n[0] a\n") :]


class TestOwnLines:
    def log(self, made: MadeRun, **selection: object) -> ScriptLog:
        attempts = begun_attempts(made).get(0, [])
        return ScriptLog(made, made.facts(), 0, attempts, Selection(**selection), plain())  # type: ignore[arg-type]

    def test_the_first_ranks_lines_are_left_out(self, made: MadeRun, script: Path) -> None:
        """As often as they are there; one that the script's own words have torn costs only itself."""
        first = made.log_folder / "0.0" / "rank-00000.log"
        lines = [b"line %d of the first rank\n" % number for number in range(20_000)]
        first.write_bytes(b"".join(lines))
        torn = [*lines[:-2], b"line", b"srun: error\n", lines[-2][4:], lines[-1]]
        script.write_bytes(b"setup\n" + b"".join(torn) + lines[0])
        assert drained(self.log(made)) == b"setup\nlinesrun: error\n" + lines[-2][4:] + lines[0]

    def test_while_both_grow(self, made: MadeRun, script: Path) -> None:
        first = made.log_folder / "0.0" / "rank-00000.log"
        script.write_bytes(b"setup\n")
        log = self.log(made)
        assert drained(log) == b"setup\n"
        first.write_bytes(b"one\ntwo\n")
        script.write_bytes(b"setup\none\nhal")
        assert drained(log) == b""
        first.write_bytes(b"one\ntwo\nhalf of three\n")
        script.write_bytes(b"setup\none\nhalf of three\ntwo\nover\n")
        assert drained(log) == b"over\n" and log.finish() == b""

    @pytest.mark.parametrize("name", ["rank-00000.log", "node-00000.log"])
    def test_their_last_half_line(self, made: MadeRun, script: Path, name: str) -> None:
        facts = {"name": "made", "scheduler": "pbs", "launcher": "pals", "per_rank_logs": name[0] == "r"}
        made.record("plan.json", facts)
        (made.log_folder / "0.0" / name).write_bytes(b"one\nhalf")
        script.write_bytes(b"one\nhalf")
        log = self.log(made)
        assert drained(log) + log.finish() == b""

    def test_of_each_attempt(self, made: MadeRun, script: Path) -> None:
        made.begin("0.1")
        for attempt in (0, 1):
            (made.log_folder / f"0.{attempt}" / "rank-00000.log").write_bytes(b"attempt %d\n" % attempt)
        script.write_bytes(b"setup 0\nattempt 0\ncastoff: attempt 1 begins\nsetup 1\nattempt 1\n")
        log = self.log(made)
        own = b"setup 0\ncastoff: attempt 1 begins\nsetup 1\n"
        assert drained(log) + log.finish() == own
        log = self.log(made, attempt=1)
        assert drained(log) + log.finish() == own[len(b"setup 0\n") :]

    def test_of_the_last_lines(self, made: MadeRun, script: Path) -> None:
        lines = b"".join(b"%d\n" % number for number in range(100))
        (made.log_folder / "0.0" / "rank-00000.log").write_bytes(lines)
        script.write_bytes(b"setup\n" + lines + b"the end\n")
        log = self.log(made, tail=10)
        assert drained(log) + log.finish() == b"the end\n"

    def test_what_the_script_repeats_of_a_failed_rank(self, made: MadeRun, script: Path) -> None:
        failed = b"".join(b"failed %d\n" % number for number in range(60))
        (made.log_folder / "0.0" / "rank-00000.log").write_bytes(b"one\n")
        (made.log_folder / "0.0" / "rank-00003.log").write_bytes(failed)
        word = b"castoff: rank 3 on x1 failed first: exit code 1; see /r/logs/0.0/rank-00003.log\n"
        script.write_bytes(b"one\n" + word + b"".join(failed.splitlines(keepends=True)[-40:]))
        for tail, own in ((None, word), (10, b""), (40, b""), (41, word)):
            log = self.log(made, tail=tail)
            assert drained(log) + log.finish() == own


def test_which_logs_an_attempt_has(made: MadeRun) -> None:
    folder = made.begin("0.0")
    for name in (
        "rank-00002.log",
        "rank-00000.log",
        "node-00001.log",
        "rank-123456.log",
        "rank-1.log",
        "x.log",
    ):
        (folder / name).touch()
    found = [(source.rank, source.node) for source, _ in rank_logs(made, 0, 0)]
    assert found == [(None, 1), (0, None), (2, None), (123456, None)]
    assert [path.name for _, path in rank_logs(made, 0, 0, [2, 7])] == ["rank-00002.log"]
    assert rank_logs(made, 3, 0) == []
