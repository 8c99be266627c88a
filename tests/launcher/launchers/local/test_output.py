from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import psutil
import pytest

from tests import patience
from tests.patience import until

from .conftest import Run, Spawn, finish, gone, pids, python, shell


def holds_all_up(launcher: psutil.Process, ranks: list[psutil.Process]) -> bool:
    """Whether both ranks wait to write, and their launcher has read nothing in three turns of its loop."""
    read, turns = launcher.io_counters().read_chars, launcher.num_ctx_switches().voluntary
    until(lambda: launcher.num_ctx_switches().voluntary >= turns + 3)
    waiting = all(rank.status() == psutil.STATUS_SLEEPING for rank in ranks)
    return waiting and launcher.io_counters().read_chars == read


class TestOutput:
    def test_logs_are_raw_and_lines_stay_whole(self, run: Run, tmp_path: Path) -> None:
        program = python(
            """
import os, sys
rank = os.environ["RANK"].encode()
for number in range(300):
    for stream in (1, 2):
        os.write(stream, rank * 40)
        os.write(stream, b"\\xff\\n")
os.write(1, b"\\r50%\\r100%")
"""
        )
        outcome = run(program, 3, log_dir=tmp_path)
        for rank in range(3):
            raw = (b"%d" % rank * 40 + b"\xff\n") * 600 + b"\r50%\r100%"
            assert (tmp_path / f"rank-{rank:05d}.log").read_bytes() == raw
        lines = outcome.output.splitlines()
        assert len(lines) == 3 * 601

    def test_half_lines_are_not_glued_together(self, run: Run, tmp_path: Path) -> None:
        program = shell(
            'printf "half$RANK "; touch $1/$RANK; while [ ! -e $1/0 ] || [ ! -e $1/1 ]; do'
            " sleep 0.01; done; sleep 0.1; echo end$RANK; printf last$RANK",
            tmp_path,
        )
        lines = run(program).output.splitlines()
        # On a slow machine a half line stands so long that it is shown as it is: as a line of its own.
        for rank in "01":
            said = "".join(line.removeprefix(f"[{rank}] ") for line in lines if line.startswith(f"[{rank}] "))
            assert said == f"half{rank} end{rank}last{rank}", lines

    def test_a_question_is_shown_while_it_waits(self, spawn: Spawn) -> None:
        process = spawn(shell('printf "name? "; read -r name; echo "hello $name"'), 1, stdin=-1)
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"[0] name? \n"
        process.stdin.write(b"you\n")
        process.stdin.close()
        process.stdin = None
        assert finish(process).output == "[0] hello you\n"

    def test_last_lines_come_before_the_report_of_the_end(self, spawn: Spawn) -> None:
        process = spawn(shell("seq 10000; exit 3"), 1, stderr=subprocess.STDOUT)
        lines = finish(process).output.splitlines()
        assert lines[0].startswith("castoff: 1 rank on ")
        assert lines[1:-1] == [f"[0] {number}" for number in range(1, 10001)]
        assert lines[-1].startswith("castoff: rank 0 on ") and lines[-1].endswith(
            " failed first: exit code 3"
        )

    def test_what_helpers_write_at_their_end_is_kept(self, run: Run, tmp_path: Path) -> None:
        helper = "trap 'seq 10000; exit' TERM; touch $1/up; while :; do sleep 0.02; done"
        program = shell(f"sh -c {shlex.quote(helper)} sh $1 & while [ ! -e $1/up ]; do :; done", tmp_path)
        run(program, 1, log_dir=tmp_path / "logs")
        kept = (tmp_path / "logs" / "rank-00000.log").read_text()
        assert kept.endswith("".join(f"{number}\n" for number in range(1, 10001)))

    def test_nobody_is_starved_by_a_flood_and_memory_is_bounded(self, spawn: Spawn, tmp_path: Path) -> None:
        program = shell(
            """[ "$RANK" != 0 ] || exec yes
            until [ -e $1/flooded ]; do sleep 0.01; done; echo heard; exit 5""",
            tmp_path,
        )
        process = spawn(program, 2)
        assert process.stdout is not None
        seen = 0
        for count, line in enumerate(process.stdout):
            seen += line == b"[1] heard\n"
            if count == 10_000:
                used = psutil.Process(process.pid).memory_info().rss
                (tmp_path / "flooded").touch()
        outcome = finish(process)
        assert (outcome.code, seen) == (5, 1)
        assert used < 100 * 2**20

    def test_a_reader_that_reads_nothing_costs_no_memory_and_holds_up_no_signal(
        self, spawn: Spawn, tmp_path: Path
    ) -> None:
        process = spawn(shell("echo $$ > $1/$RANK; exec yes", tmp_path), 2)
        launcher = psutil.Process(process.pid)
        ranks = [psutil.Process(pid) for pid in pids(tmp_path, 2).values()]
        until(lambda: holds_all_up(launcher, ranks) or launcher.memory_info().rss > 100 * 2**20)
        assert launcher.memory_info().rss < 100 * 2**20
        process.terminate()
        until(lambda: all(map(gone, pids(tmp_path, 2).values())))
        assert finish(process).code == 143

    def test_a_reader_that_leaves_costs_no_log(self, spawn: Spawn, tmp_path: Path) -> None:
        program = shell(
            "seq 200000; touch $1/$RANK; [ $RANK = 0 ] && exec sleep 60;"
            " while [ ! -e $1/0 ]; do sleep 0.01; done; exit 3",
            tmp_path,
        )
        process = spawn(program, 2, log_dir=tmp_path)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        outcome = finish(process)
        assert outcome.code == 3
        whole = "".join(f"{number}\n" for number in range(1, 200001))
        assert (tmp_path / "rank-00000.log").read_text() == whole
        assert (tmp_path / "rank-00001.log").read_text() == whole
        assert "(Broken pipe): all of it is in the logs in" in outcome.messages

    def test_without_logs_a_closed_pipe_is_reported(self, spawn: Spawn) -> None:
        process = spawn(["seq", "200000"], 2)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        outcome = finish(process)
        assert outcome.code == 0
        assert "(Broken pipe): the rest of it is lost" in outcome.messages

    def test_with_logs_a_stuck_reader_does_not_hold_up_the_end(self, spawn: Spawn, tmp_path: Path) -> None:
        process = spawn(shell("seq 30000"), 1, log_dir=tmp_path)
        assert process.wait(patience.SECONDS) == 0
        assert "lines of output were not shown, because nothing read them" in finish(process).messages
        assert len((tmp_path / "rank-00000.log").read_text().splitlines()) == 30000

    def test_a_full_disk_is_reported_and_the_job_continues(self, run: Run, tmp_path: Path) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("no /dev/full")
        (tmp_path / "rank-00001.log").symlink_to("/dev/full")
        outcome = run(shell("echo one; sleep 0.1; echo two"), 2, log_dir=tmp_path)
        assert outcome.code == os.EX_IOERR  # the ranks did well, and not all that they wrote is kept
        assert outcome.messages.count("is incomplete after 0 bytes: No space left on device") == 1
        assert (tmp_path / "rank-00000.log").read_text() == "one\ntwo\n"
        assert {"[1] one", "[1] two"} <= {*outcome.output.splitlines()}

    def test_many_ranks(self, run: Run) -> None:
        outcome = run(shell("echo $RANK"), 40)
        assert sorted(outcome.output.splitlines()) == sorted(f"[{n}] {n}" for n in range(40))
