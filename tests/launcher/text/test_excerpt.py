"""What is shown of a failed rank's log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from castoff.launcher.text.excerpt import cause, excerpt

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


class TestCause:
    """The one line that lists show."""

    @pytest.mark.parametrize(
        "text",
        [
            SIMPLE + NOISE * 50,
            "\x1b[31mValueError: no\x1b[0m\n\n",
            "epoch 1\nValueError: no\nsrun: error: n2: task 1: Exited with exit code 2\n",
            SIMPLE.replace("Traceback", "  + Exception Group Traceback").replace("Value", "  | Value"),
        ],
    )
    def test_the_exception(self, text: str) -> None:
        assert cause(text.encode()) == "ValueError: no"

    def test_what_stands_below_a_message_that_ends_in_a_colon(self) -> None:
        keys = SIMPLE.replace("no\n", "Error(s) in Net:\n\tMissing key(s): a\n\tsize mismatch for b\n")
        assert cause(keys.encode()) == "ValueError: Error(s) in Net: Missing key(s): a"
        assert cause(SIMPLE.replace("no\n", "no:\n").encode()) == "ValueError: no"
        assert cause(SIMPLE.replace("no\n", "no:\nepoch 1\n").encode()) == "ValueError: no"

    @pytest.mark.parametrize(
        "line",
        [
            "train.py: error: unrecognized arguments: --lrr 1",
            "what():  cannot open data",
            "slurmstepd: error: execve(): x: No such file or directory",
            "Fatal Python error: Segmentation fault",
        ],
    )
    def test_without_a_traceback_an_error_at_the_end(self, line: str) -> None:
        assert cause(f"epoch 1\n  {line}\n".encode()) == line

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "epoch 1: train_error=0.12, val error 0.13\n",
            "cannot do this\n1\n2\n3\n",
            "srun: error: n2: task 1: Exited with exit code 2\n",
            SIMPLE.replace("ValueError: no\n", ""),
            f"Exception in thread Thread-1:\n{SIMPLE}1\n2\n3\n",
        ],
    )
    def test_none_that_is_only_likely(self, text: str) -> None:
        assert cause(text.encode()) is None

    def test_of_the_rank_that_failed(self) -> None:
        assert cause(TestTorch.LOG.encode()) == "ValueError: bad"
