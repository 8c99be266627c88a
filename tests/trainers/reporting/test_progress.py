"""The bar: on a terminal, on rank 0, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.reporting.progress import Progress, duration_words
from tests import patience

SHOW = """
import logging, sys, torch
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.reporting.progress import Progress

logging.basicConfig(level="INFO", format="[RANK 0] %(message)s")
place = RankContext(int(sys.argv[1]), 2, torch.device("cpu"))
with Progress(place, total=10, epochs=3, done=4, epoch=1) as progress:
    for done in range(5, 11):
        progress.step(done, 1)
        if done == 7 and sys.argv[1] == "0" and len(sys.argv) > 2:
            logging.info("a line for the log")
logging.info("the end") if len(sys.argv) > 2 else None
"""


def shown(rank: int, *, terminal: bool, log: bool = False) -> str:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TERM": "xterm"}
    command = [sys.executable, "-c", SHOW, str(rank), *(["log"] if log else [])]
    error = theirs if terminal else subprocess.PIPE
    done = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=error, timeout=patience.SECONDS, check=True
    )
    os.close(theirs)
    given = b""
    try:
        while part := os.read(ours, 4096):
            given += part
    except OSError:  # all of it was read, and nobody writes any more
        pass
    os.close(ours)
    return (given + done.stdout + (done.stderr or b"")).decode()


@pytest.mark.usefixtures("for_real")
def test_on_a_terminal() -> None:
    text = shown(0, terminal=True, log=True)
    assert "epoch 2 of 3" in text
    assert "/10" in text
    for line in ("a line for the log", "the end"):  # each at the beginning of a line of its own
        (before,) = re.findall(rf"(.)\[RANK 0\] {line}\r\n", text, re.DOTALL)
        assert before in "\nK", "K ends what empties the bar's line"


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(("rank", "terminal"), [(1, True), (0, False)])
@pytest.mark.long
def test_nowhere_else(rank: int, terminal: bool) -> None:
    assert shown(rank, terminal=terminal) == ""


def test_where_standard_error_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(RankContext(0, 1, torch.device("cpu")), total=3, epochs=1, done=0, epoch=0) as bar:
        bar.step(1, 0)


class Clock:
    """Moves when the test moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


ALONE = RankContext(0, 1, torch.device("cpu"))
VALUES = {
    "train/loss": 0.52441,
    "train/accuracy": 0.91,
    "train/lr": 0.001,
    "train/samples_per_second": 1234.4,
    "train/step_time": 0.2,
    "train/memory_gb": 1.2,
}


def test_the_line_has_the_measures_and_the_time_left() -> None:
    clock = Clock()
    progress = Progress(ALONE, total=1000, epochs=10, done=398, epoch=2, clock=clock)
    assert progress.left() is None
    clock.now = 100.0
    progress.step(399, 2)
    assert progress.left() is None, "the first step of a process tells little of the next"
    clock.now = 101.2
    progress.step(400, 2)
    assert progress.left() == pytest.approx(720)
    assert progress.line(VALUES) == (
        "step 400 (epoch 3 of 10): loss 0.5244, accuracy 0.91, lr 0.001, 1,234 samples/s, 12 min left"
    )


def test_steps_may_end_a_training_and_nobody_may_know_when() -> None:
    progress = Progress(ALONE, total=10_000)
    progress.step(400, 0)
    assert progress.line({"train/loss": 1.0}) == "step 400 of 10,000 (epoch 1): loss 1"
    progress = Progress(ALONE, total=None, epochs=3)
    progress.step(400, 3)
    progress.step(401, 3)
    assert progress.line({"train/loss": 1.0}) == "step 401 (epoch 3 of 3): loss 1"


def test_the_line_names_what_holds_training_up() -> None:
    progress = Progress(ALONE, total=None)
    held = {"train/data_wait": 0.4, "train/slowest_rank": 5.0, "train/slowest_rank_lag": 0.23}
    assert "waiting for data 40% of the time, rank 5 slower by 23%" in progress.line({**VALUES, **held})
    assert "rank" not in progress.line({**VALUES, "train/slowest_rank": 5.0, "train/slowest_rank_lag": 0.02})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (45, "45 s"), (720, "12 min"), (12000, "3 h 20 min"), (187200, "2 d 4 h")],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words
