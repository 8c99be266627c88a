from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from castoff.launcher.launchers.local import supervision
from tests import patience
from tests.patience import until

from .conftest import Run, Spawn, finish, gone, pids, python, shell


class TestFailure:
    def test_the_first_one_is_recorded_and_ends_the_others(self, run: Run, tmp_path: Path) -> None:
        record = tmp_path / "failure.json"
        program = shell('[ "$RANK" = 1 ] && { echo because; exit 3; }; exec sleep 600')
        begun = time.time()
        outcome = run(program, 3, failure_file=record, log_dir=tmp_path / "logs")
        assert outcome.code == 3
        found = json.loads(record.read_text())
        assert begun - 1 <= found.pop("time") <= time.time()
        host = socket.gethostname()
        assert found == {"rank": 1, "host": host, "code": 3, "signal": None}
        log = tmp_path / "logs" / "rank-00001.log"
        said = f"castoff: rank 1 on {host} failed first: exit code 3; its log: {log}\n"
        assert said in outcome.messages
        assert [path.name for path in tmp_path.iterdir() if "failure" in path.name] == [record.name]

    @pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
    def test_a_signal(self, run: Run, tmp_path: Path, name: str) -> None:
        record = tmp_path / "failure.json"
        program = shell('[ "$RANK" = 0 ] && kill -$1 $$; exec sleep 600', name[3:])
        outcome = run(program, 2, failure_file=record)
        code = 128 + getattr(signal, name)
        assert outcome.code == code
        found = json.loads(record.read_text())
        assert (found["code"], found["signal"]) == (code, name)
        assert f"failed first: killed by {name}\n" in outcome.messages

    def test_who_started_them_adopts_no_more(self, run: Run) -> None:
        """Else what its other children leave would stay its zombies."""
        run(shell("true"), 1)
        adopts = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(adopts), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER, see prctl(2)
        assert adopts.value == 0

    def test_half_a_record_is_none(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on a full disk: another may still write his."""
        record = tmp_path / "failure.json"

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(json, "dumps", full)  # once the file is there
        outcome = run(shell("exit 7"), 1, failure_file=record)
        assert outcome.code == 7 and not record.exists()
        assert f"castoff: cannot write {record}: No space left on device\n" in outcome.messages

    def test_a_signal_without_a_name(self, run: Run) -> None:
        assert "failed first: killed by SIG40\n" in run(shell("kill -40 $$"), 1).messages

    def test_the_first_writer_wins(self, run: Run, tmp_path: Path) -> None:
        record = tmp_path / "failure.json"
        record.write_text("earlier")
        assert run(["false"], 1, failure_file=record).code == 1
        assert record.read_text() == "earlier"
        assert list(tmp_path.iterdir()) == [record]

    def test_a_record_that_cannot_be_written_is_reported(self, run: Run, tmp_path: Path) -> None:
        outcome = run(["false"], 1, failure_file=tmp_path / "no" / "failure.json")
        assert outcome.code == 1
        assert "failure.json: No such file or directory" in outcome.messages

    def test_trees_that_ignore_term_are_gone_all_the_same(self, run: Run, tmp_path: Path) -> None:
        program = shell(
            """trap '' TERM
            if [ "$RANK" = 0 ]; then while [ ! -s $1/c1 ]; do sleep 0.01; done; exit 9; fi
            setsid sh -c 'trap "" TERM; echo $$ > $1/c1; while :; do sleep 1; done' sh $1 &
            echo $$ > $1/p1; while :; do sleep 1; done""",
            tmp_path,
        )
        outcome = run(program, 2)
        assert outcome.code == 9
        assert all(map(gone, pids(tmp_path, 2).values()))

    def test_the_others_may_tidy_up(self, run: Run, tmp_path: Path) -> None:
        program = shell(
            """if [ "$RANK" = 1 ]; then trap 'echo tidy; exit 0' TERM; touch $1/ready
            while :; do sleep 0.05; done; fi
            while [ ! -e $1/ready ]; do sleep 0.01; done; exit 1""",
            tmp_path,
        )
        assert "[1] tidy\n" in run(program, 2).output

    @pytest.mark.parametrize("order", [[3, 1, 0, 2], [2, 3, 1, 0]])
    def test_of_ranks_that_end_together_the_first_is_named(
        self, spawn: Spawn, tmp_path: Path, order: list[int]
    ) -> None:
        started = tmp_path / "started"
        started.mkdir()
        program = shell("echo $$ > $1/$RANK; exec sleep 600", started)
        record = tmp_path / "failure.json"
        process = spawn(program, 4, failure_file=record)
        ranks = pids(started, 4)
        assert process.stderr is not None
        assert b"4 ranks on" in process.stderr.readline()  # now it watches all of them
        process.send_signal(signal.SIGSTOP)
        for rank in order:
            os.kill(ranks[str(rank)], signal.SIGKILL)
            until(partial(gone, ranks[str(rank)]))
        process.send_signal(signal.SIGCONT)
        assert finish(process).code == 137
        assert json.loads(record.read_text())["rank"] == order[0]

    def test_without_pidfds(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        outcome = run(shell('sleep 0.2; [ "$RANK" = 1 ] && exit 4; exec sleep 600'), 3)
        assert outcome.code == 4
        assert "rank 1 on " in outcome.messages
        assert run(["true"], 3).code == 0


ASKED = """
import os, signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
for other in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(other, lambda *_: os._exit(50))
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(str(os.getpid()))
while not stop:
    time.sleep(0.01)
print("stopping")
"""
HEEDLESS = 'trap "$2" TERM; echo $$ > $1/$RANK; while :; do sleep 0.05; done'


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_programs_that_stop_in_time_end_well(
        self, spawn: Spawn, tmp_path: Path, number: signal.Signals
    ) -> None:
        process = spawn(python(ASKED, tmp_path), 2)
        pids(tmp_path, 2)
        process.send_signal(number)
        outcome = finish(process)
        assert outcome.code == 0
        assert sorted(outcome.output.splitlines()) == ["[0] stopping", "[1] stopping"]
        assert "stopped by" not in outcome.messages and "failed" not in outcome.messages

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    def test_programs_that_die_of_it_did_not_fail(
        self, spawn: Spawn, tmp_path: Path, number: signal.Signals
    ) -> None:
        (tmp_path / "pids").mkdir()
        record = tmp_path / "failure.json"
        program = shell("echo $$ > $1/$RANK; exec sleep 600", tmp_path / "pids")
        process = spawn(program, 2, failure_file=record)
        pids(tmp_path / "pids", 2)
        process.send_signal(number)
        outcome = finish(process)
        assert outcome.code == 128 + number
        assert outcome.messages.endswith(f"castoff: stopped by {number.name}\n")
        assert "failed" not in outcome.messages and not record.exists()

    def test_a_signal_that_reaches_the_ranks_first_is_not_a_failure(
        self, spawn: Spawn, tmp_path: Path
    ) -> None:
        process = spawn(shell("echo $$ > $1/$RANK; exec sleep 600", tmp_path), 2)
        ranks = pids(tmp_path, 2)
        assert process.stderr is not None
        assert b"2 ranks on" in process.stderr.readline()
        process.send_signal(signal.SIGSTOP)
        for rank in ranks.values():
            os.kill(rank, signal.SIGTERM)
            until(partial(gone, rank))
        process.terminate()
        process.send_signal(signal.SIGCONT)
        outcome = finish(process)
        assert outcome.code == 143
        assert outcome.messages.endswith("castoff: stopped by SIGTERM\n")

    def test_a_rank_that_dies_of_it_leaves_the_others_their_time(self, spawn: Spawn, tmp_path: Path) -> None:
        program = shell(
            """[ "$RANK" = 0 ] || trap 'sleep 0.5; echo saved; exit 0' TERM
            echo $$ > $1/$RANK; while :; do sleep 0.05; done""",
            tmp_path,
        )
        process = spawn(program, 2, grace=0.0)
        pids(tmp_path, 2)
        process.terminate()
        outcome = finish(process)
        assert (outcome.code, outcome.output) == (143, "[1] saved\n")

    def test_a_failure_while_stopping_is_a_failure(self, spawn: Spawn, tmp_path: Path) -> None:
        process = spawn(shell(HEEDLESS, tmp_path, "exit 7"), 2)
        pids(tmp_path, 2)
        process.terminate()
        outcome = finish(process)
        assert outcome.code == 7
        assert "failed first: exit code 7" in outcome.messages

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_the_second_one_kills(self, spawn: Spawn, tmp_path: Path, number: signal.Signals) -> None:
        process = spawn(shell(HEEDLESS, tmp_path, ": >$1/asked.$RANK"), 2, grace=600.0, echo=0.0)
        ranks = pids(tmp_path, 2)
        process.send_signal(number)
        until(lambda: len(list(tmp_path.glob("asked.*"))) == 2)
        assert process.poll() is None
        process.send_signal(number)
        outcome = finish(process)
        assert outcome.code == 128 + number
        assert f"stopped by {number.name}\n" in outcome.messages
        assert all(map(gone, ranks.values()))

    def test_a_copy_of_the_same_signal_is_not_a_second_one(self, spawn: Spawn, tmp_path: Path) -> None:
        answers = ": >$1/asked; read -r _; echo one; read -r _; echo two; read -r _; echo saved; exit 0"
        process = spawn(shell(HEEDLESS, tmp_path, answers), 1, echo=600.0, stdin=subprocess.PIPE)
        pids(tmp_path, 1)
        process.terminate()
        until((tmp_path / "asked").exists)
        process.terminate()
        assert process.stdin is not None and process.stdout is not None
        for word in (b"one", b"two"):  # by the second the launcher has heard the signal
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"[0] " + word + b"\n"
        process.stdin.write(b"\n")
        outcome = finish(process)
        assert (outcome.code, outcome.output) == (0, "[0] saved\n")

    def test_user_signals_stay_with_the_launcher(self, spawn: Spawn, tmp_path: Path) -> None:
        process = spawn(python(ASKED, tmp_path), 1)
        pids(tmp_path, 1)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            process.send_signal(number)
        process.terminate()  # which the launcher hears last, and a rank after all that was passed on
        assert finish(process).code == 0

    def test_user_signals_are_not_ignored_in_ranks(self, run: Run) -> None:
        assert run(shell("kill -USR1 $$"), 1).code == 128 + signal.SIGUSR1

    def test_ranks_have_sessions_of_their_own(self, run: Run) -> None:
        program = python("import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())")
        assert sorted(run(program).output.splitlines()) == ["[0] True", "[1] True"]

    def test_handlers_and_affairs_are_put_back(self, run: Run) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
        before = [signal.getsignal(number) for number in numbers]
        files = len(psutil.Process().open_files()), psutil.Process().num_fds()
        threads = threading.active_count()
        children = psutil.Process().children()
        run(["true"])
        run(["false"])
        assert [signal.getsignal(number) for number in numbers] == before
        assert (len(psutil.Process().open_files()), psutil.Process().num_fds()) == files
        assert threading.active_count() == threads
        assert psutil.Process().children() == children

    def test_exit_codes_survive_ignored_child_signals(self, run: Run) -> None:
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            assert run(shell("exit 5"), 1).code == 5
        finally:
            signal.signal(signal.SIGCHLD, before)


DAEMON = """
import os, signal, sys, time
if os.fork():
    while not os.path.exists(sys.argv[1]): time.sleep(0.01)
    sys.exit(int(sys.argv[2]))
os.setsid()
if os.fork(): os._exit(0)
if sys.argv[3] == "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1] + "~", "w") as file: file.write(str(os.getpid()))
os.rename(sys.argv[1] + "~", sys.argv[1])
while True:
    print("still here")
    time.sleep(0.1)
"""


class TestNobodyIsLeft:
    @pytest.mark.parametrize("kind", ["meek", "stubborn"])
    @pytest.mark.parametrize("code", [0, 6])
    def test_a_daemon_that_holds_the_pipe(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: int
    ) -> None:
        note = tmp_path / "pid"
        monkeypatch.setattr(supervision, "GRACE", 0.5)
        outcome = run(python(DAEMON, note, code, kind), 1)
        assert outcome.code == code
        assert gone(int(note.read_text()))
        if code == 0:
            assert "ending 1 process that outlived the ranks" in outcome.messages
        if kind == "stubborn":
            assert "killed 1 process that had not ended on SIGTERM" in outcome.messages

    def test_a_helper_that_ends_by_itself_is_not_reported(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(supervision, "_SETTLE", patience.SECONDS)
        assert "outlived" not in run(shell("sleep 0.1 & exit 0"), 1).messages

    def test_orphans_that_die_meanwhile_leave_no_zombies(self, run: Run) -> None:
        program = python(
            """
import os, time
for _ in range(20):
    if not os.fork():
        if os.fork(): os._exit(0)
        os._exit(0)
    os.wait()
launcher = os.getppid()
zombies = 1
while zombies:
    time.sleep(0.05)
    zombies = 0
    for name in os.listdir("/proc"):
        try: state, parent = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[:2]
        except OSError: continue
        zombies += state == "Z" and int(parent) == launcher
print(zombies)
"""
        )
        assert run(program, 1).output == "[0] 0\n"

    def test_children_this_process_had_before_are_not_touched(self, run: Run) -> None:
        mine = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"])
        try:
            assert run(["false"]).code == 1
            assert mine.poll() is None
            assert len(psutil.Process(mine.pid).children()) == 1
        finally:
            for child in psutil.Process(mine.pid).children():
                child.kill()
            mine.kill()
            mine.wait()

    def test_nor_does_one_that_was_just_started(self, tmp_path: Path) -> None:
        """Its launcher is killed before it can tell the orphan reaper of it."""
        program = """
import os, signal, subprocess
from castoff.launcher.launchers.local import processes
processes.GRACE = 0.0
environ = {**os.environ, **processes.OrphanReaper().environment}
rank = subprocess.Popen(["sleep", "600"], env=environ, start_new_session=True, stdout=subprocess.DEVNULL)
print(rank.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
        killed = subprocess.run(python(program), capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        until(lambda: gone(int(killed.stdout)))

    def test_ranks_do_not_outlive_a_killed_launcher(self, spawn: Spawn, tmp_path: Path) -> None:
        program = shell(
            """trap '' TERM HUP
            setsid sh -c 'echo $$ > $1/c$RANK; exec sleep 600' sh $1 &
            echo $$ > $1/$RANK; while :; do sleep 0.1; done""",
            tmp_path,
        )
        process = spawn(program, 2, grace=0.3)
        family = [*pids(tmp_path, 4).values()]
        guards = [child.pid for child in psutil.Process(process.pid).children()]
        process.kill()
        process.communicate()
        until(lambda: all(map(gone, [*family, *guards])))
