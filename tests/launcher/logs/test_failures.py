"""What is shown of a failed rank's log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.launchers.local import mpi_worlds
from castoff.launcher.launchers.local.lone_rank import HINT
from castoff.launcher.launchers.local.mpi_worlds import MpiWorlds
from castoff.launcher.logs.failures import excerpt, script_headline, script_output
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus

NOISE = "W1121 02:45:27 NCCL watchdog: something C++ has to say\n"


def shown(text: str, *, cut: bool = False) -> str:
    return "".join(line.decode() + "\n" for line in excerpt(text.encode(), "LOG", cut=cut))


def traceback(program: str) -> str:
    """What Python really writes."""
    words = [sys.executable, "-X", "faulthandler", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


TORCH_2_1 = "[2023-10-05 10:00:00,000] torch.distributed.elastic.multiprocessing.api: [ERROR]"
SIMPLE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nValueError: no\n'


class TestWithoutATraceback:
    def test_a_short_log_is_shown_whole(self) -> None:
        assert shown("one\ntwo\n") == "one\ntwo\n"
        assert shown("one\ntwo") == "one\ntwo\n"
        assert shown("") == ""

    def test_of_a_long_one_the_last_lines(self) -> None:
        text = "".join(f"{number}\n" for number in range(100))
        lines = shown(text).splitlines()
        assert lines[0] == "… 60 lines are not shown here: LOG"
        assert lines[1:] == [str(number) for number in range(60, 100)]
        assert shown(text, cut=True).startswith("… more than 60 lines are not shown here: LOG\n60\n")

    def test_a_line_of_many_megabytes(self) -> None:
        (line,) = shown("x" * 3_000_000).splitlines()
        assert line.startswith("xxxx") and line.endswith(" … (3000000 bytes)") and len(line) < 5000

    def test_of_a_progress_bar_what_was_seen(self) -> None:
        assert shown("\r10%\r50%\r\n") == "50%\n"


class TestTracebacks:
    def test_the_last_one_and_what_follows(self) -> None:
        earlier = SIMPLE.replace("no", "handled")
        assert shown(f"start\n{earlier}going on\n{SIMPLE}{NOISE}") == SIMPLE + NOISE

    def test_it_is_whole_however_long(self) -> None:
        frames = "".join(f'  File "a.py", line {number}, in f\n    f()\n' for number in range(300))
        long = SIMPLE.replace("    f()\n", f"    f()\n{frames}")
        assert shown(f"start\n{long}" + NOISE * 50) == long + NOISE * 50

    def test_much_noise_behind_it_is_bounded(self) -> None:
        text = shown(SIMPLE + NOISE * 30 + "lost\n" * 1000 + "end\n" * 30)
        assert text == SIMPLE + NOISE * 30 + "… 1000 lines are not shown here: LOG\n" + "end\n" * 30

    @pytest.mark.parametrize(
        "program",
        [
            "try:\n    {}[1]\nexcept KeyError as e:\n    raise ValueError('two\\nlines') from e",
            "try:\n    {}[1]\nexcept KeyError:\n    try:\n        [][0]\n    except IndexError:\n        1/0",
            "def f(n):\n    return f(n + 1)\nf(0)",
            "exec('1 +')",
            "raise SystemError",
        ],
    )
    def test_as_python_writes_them(self, program: str) -> None:
        """Chains with all that they were raised from."""
        real = traceback(program)
        assert shown(f"epoch 1\n{SIMPLE}epoch 2\n{real}") == real

    def test_a_group(self) -> None:
        group = (
            "  + Exception Group Traceback (most recent call last):\n"
            '  |   File "<string>", line 1, in <module>\n'
            "  | ExceptionGroup: two (2 sub-exceptions)\n"
            "  +-+---------------- 1 ----------------\n    | ValueError: 1\n"
            "    +---------------- 2 ----------------\n    | TypeError: 2\n"
            "    +------------------------------------\n"
        )
        assert shown(f"epoch\n{group}after\n") == f"{group}after\n"

    def test_a_crash_of_python_itself(self) -> None:
        real = traceback("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        assert real.startswith("Fatal Python error: Segmentation fault\n")
        assert shown("epoch\n" * 50 + real) == real

    def test_exceptions_that_end_nobody(self) -> None:
        ignored = "Exception ignored in: <function X.__del__ at 0x7>\n" + SIMPLE.replace("no", "ignored")
        thread = "Exception in thread Thread-1:\n" + SIMPLE.replace("no", "thread")
        chained = f"{thread}\nDuring handling of the above exception, another exception occurred:\n\n{SIMPLE}"
        assert shown(f"start\n{SIMPLE}{ignored}{thread}") == SIMPLE + ignored + thread
        assert shown(f"start\n{chained}") == f"start\n{chained}"

    def test_one_that_is_cut_off(self) -> None:
        half = SIMPLE[: SIMPLE.index("ValueError")]
        assert shown(f"start\n{half}") == half
        assert shown("Traceback (most recent call last):\n") == "Traceback (most recent call last):\n"


class TestTorch:
    """As torch 2.13 writes them; recorded with three ranks, of which rank 1 raises."""

    LOG = (Path(__file__).parent / "torchrun.log").read_text()

    def test_under_torchrun_the_root_cause_alone(self) -> None:
        text = shown(self.LOG)
        assert text.startswith("[rank1]: Traceback (most recent call last):\n")
        assert text.count("Traceback") == 2 and "KeyError: 'x'" in text
        assert text.endswith("[rank1]: ValueError: bad\n[rank1]: second line of the message\n")

    def test_lines_of_other_ranks_in_between(self) -> None:
        mine = [line for line in self.LOG.splitlines() if line.startswith("[rank1]: ")]
        cause = self.LOG[self.LOG.index("Root Cause") :]
        mixed = "".join(f"{line}\n[rank0]: Traceback (most recent call last):\n" for line in mine)
        shown_lines = shown(mixed + cause).splitlines()
        assert [line for line in shown_lines if line] == mine

    @pytest.mark.parametrize(
        "says",
        ["E1127 07:20:35.6 24339 torch/distributed/elastic/multiprocessing/api.py:1002]", TORCH_2_1],
    )
    def test_of_a_rank_without_a_traceback_what_it_wrote(self, says: str) -> None:
        """Not the screen that torchrun adds; of two starts the newest."""
        ends = f"{says} Sending process 7 closing signal SIGTERM\nTerminated\n"
        failed = f"{says} failed (exitcode: 1) local_rank: 1 (pid: 8) of binary: python\n"
        noise = ends + failed + SIMPLE.replace("ValueError: no", "torch.x.ChildFailedError: ") + "=\n" * 60
        assert shown(f"cannot read shard 1\n{noise}") == "cannot read shard 1\n"
        assert shown(f"first\n{noise}second\n{noise}").splitlines()[-1] == "second"

    def test_without_a_root_cause_not_torchruns_own(self) -> None:
        text = shown(self.LOG.replace("Root Cause", "Some cause"))
        assert text.startswith("[rank0]: Traceback") and "ChildFailedError" not in text


class TestScriptOutput:
    """What launchers really print, in the log of a script."""

    SRUN = "srun: error: Unable to create step for job 2: Memory required by task is not available\n"
    RESTART = (
        "castoff: attempt 0 failed: the launcher failed with code 1; attempt 1 begins (restart 1 of 1)\n"
    )

    def said(self, folder: Path, log: str, **changes: Any) -> list[str]:
        return script_output(*self.made(folder, log, **changes))

    def made(
        self, folder: Path, log: str, *, attempt: int = 0, rank: str = "", **changes: object
    ) -> tuple[RunDirectory, int, AttemptStatus]:
        run = RunDirectory(folder)
        for number in range(log.count("castoff: attempt ") + 1):
            (folder / "attempts" / f"0.{number}").mkdir(parents=True, exist_ok=True)
        logs = folder / "logs" / f"0.{attempt}"
        logs.mkdir(parents=True)
        (logs / "rank-00000.log").write_text(rank)
        run.script_log().write_text(log)
        facts: dict[str, Any] = {
            "state": "ended",
            "ending": "failed",
            "reason": None,
            "failure": None,
            **changes,
        }
        status = AttemptStatus(
            attempt,
            code=1,
            host="n1",
            started=1.0,
            ended=2.0,
            logs=str(logs),
            **facts,
        )
        return run, 0, status

    @pytest.mark.parametrize(
        ("log", "first"),
        [
            (SRUN, SRUN.strip()),
            ("srun: unrecognized option '--no'\nTry \"srun --help\"\n", "srun: unrecognized option '--no'"),
            (
                "/r/job.sh: line 300: mpiexec: command not found\n",
                "/r/job.sh: line 300: mpiexec: command not found",
            ),
            (
                f"{'-' * 74}\nThere are not enough slots available\n\n{'-' * 74}\n",
                "There are not enough slots available",
            ),
            (
                "[mpiexec@n1] match_arg (args.c:163): unrecognized argument no\n",
                "[mpiexec@n1] match_arg (args.c:163): unrecognized argument no",
            ),
            ("something new\n", "something new"),
        ],
    )
    def test_the_launchers_own_words_begin(self, tmp_path: Path, log: str, first: str) -> None:
        made = self.made(tmp_path, log)
        assert script_output(*made)[0] == script_headline(*made) == first

    def test_a_headline_is_the_last_line_of_others(self, tmp_path: Path) -> None:
        log = "module load: no such module\ncastoff: the job has 1 node and needs 2\n"
        assert script_headline(*self.made(tmp_path / "a", log)) == "the job has 1 node and needs 2"
        assert script_headline(*self.made(tmp_path / "b", "\n")) is None
        assert script_headline(*self.made(tmp_path / "c", log, reason="it is known")) is None
        assert script_headline(*self.made(tmp_path / "d", log, ending="done")) is None
        long = self.SRUN + "x\n" * (1 << 16)
        assert script_headline(*self.made(tmp_path / "e", long)) == "x"  # no more than its end is read

    def test_each_attempt_has_its_own(self, tmp_path: Path) -> None:
        log = self.SRUN + self.RESTART + "srun: error: something else\n"
        reason = "the launcher failed with code 1"
        assert self.said(tmp_path / "a", log, reason=reason) == [self.SRUN.strip()]
        assert self.said(tmp_path / "b", log, attempt=1, reason=reason) == ["srun: error: something else"]

    def test_of_a_requeued_job(self, tmp_path: Path) -> None:
        """Slurm appends to its log, and a host may have its own slurmstepd."""
        log = f"{self.SRUN}slurmstepd-n1: error: *** JOB 3 ON n1 CANCELLED DUE TO JOB REQUEUE ***\n"
        log += "castoff: attempt 1 begins\nsrun: error: something else\n"
        assert self.said(tmp_path / "a", log)[0] == self.SRUN.strip()
        assert self.said(tmp_path / "b", log, attempt=1) == ["srun: error: something else"]
        assert self.said(tmp_path / "c", log + "castoff: attempt 3 begins\nsrun: late\n", attempt=2) == []

    def test_among_what_ranks_print(self, tmp_path: Path) -> None:
        log = f"epoch 1\n{'-' * 40}\nsrun: error: Task launch for StepId=2.0 failed on node n2: no\nepoch 2\n"
        (line,) = self.said(tmp_path, log, rank="epoch 1\nepoch 2\n")
        assert line.startswith("srun: error: Task launch")

    def test_where_something_else_ended_it(self, tmp_path: Path) -> None:
        assert self.said(tmp_path / "a", self.SRUN, reason="No space left on the disk") == []
        assert self.said(tmp_path / "b", self.SRUN, ending="cancelled") == []

    def test_while_it_waits(self, tmp_path: Path) -> None:
        waits = "castoff: after 20 s these have not started: n2 (rank 1)\n"
        retries = "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
        running: dict[str, Any] = {"state": "running", "ending": None}
        for name in "abc":
            (tmp_path / name / "attempts" / "0.0").mkdir(parents=True)
        (tmp_path / "a" / "attempts" / "0.0" / "starting").touch()
        (tmp_path / "b" / "attempts" / "0.0" / "starting").touch()
        said = self.said(tmp_path / "a", waits + retries, **running)
        assert said == [waits.removeprefix("castoff: ").strip(), retries.strip()]
        assert self.said(tmp_path / "b", waits + "castoff: after 25 s all have started\n", **running) == []
        assert self.said(tmp_path / "c", waits, **running) == []

    @pytest.mark.parametrize(
        ("log", "shown"),
        [
            ("ready\ncastoff: {alone}\n", True),
            ("castoff: {alone}\nepoch 1\n", False),
            ("castoff: {worlds}\nepoch 1\n", True),
            ("castoff: {worlds}\ncastoff: attempt 0 failed: x; attempt 1 begins (restart 1 of 1)\n", False),
        ],
    )
    def test_while_ranks_do_not_meet(self, tmp_path: Path, log: str, shown: bool) -> None:
        """Until something shows that they do."""
        worlds = MpiWorlds(2, {0: 70}, 0.0)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(mpi_worlds, "mpi_of", lambda pid: "libmpi.so.40")
            texts = {"alone": HINT, "worlds": str(worlds.look(1.0))}
        number = log.count("begins")
        said = self.said(tmp_path, log.format(**texts), attempt=number, state="running", ending=None)
        assert said == [text for text in texts.values() if shown and text in log.format(**texts)]
