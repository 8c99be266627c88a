"""What a program does around a training that fails or is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from castoff.trainers import train
from tests import patience
from tests.command_line import COMMAND
from tests.mistakes.programs import MARK, SPAWNED, task
from tests.mistakes.test_mistakes import as_program, run
from tests.ports import free_port
from tests.trainers.toys import Ranks, Toy, config
from tests.trainers.warm import ForkedRank

pytestmark = pytest.mark.usefixtures("for_real")


class Bad(Toy):
    """Rank 1 has an error of its own."""

    def loss(self, model: Any, batch: Any) -> Any:
        if self.state.step == 3 and os.environ["RANK"] == "1":
            raise ValueError("a sample is bad")
        return super().loss(model, batch)


def catches(folder: Path) -> str:
    """Continues after the error until it hears that the others have ended."""
    try:
        train(config(folder / "out"), Bad(400))
    except ValueError as error:
        patience.until((folder / "over").exists)
        return str(error)
    return "nothing"


def test_a_program_may_catch_it_and_the_others_end_meanwhile(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", 3)
    ranks.start(catches, tmp_path)
    first, second, third = ranks.processes
    assert [each.wait(patience.SECONDS) for each in (first, third)] == [1, 1]
    assert second.poll() is None
    (tmp_path / "over").touch()
    assert second.wait(patience.SECONDS) == 0, ranks.log(1)
    assert "ended after step 3: ValueError: a sample is bad" in ranks.log(0)
    assert ranks.log(1).count("[rank1]: ValueError: a sample is bad") == 1


BUSY = "open(f'busy-{RANK}', 'w').close(); time.sleep(10000)"

BEFORE = {"setup": "self, place", "build_data": "self"}
"""Methods that are called before the training loop, and in it; what they take."""

INSIDE = {
    "loss": "self, model, batch",
    "evaluate": "self, model, batch",
    "export": "self, model, folder, *, better",
}


def busy_in(stage: str, folder: Path) -> Path:
    """A program whose ranks leave word once they are there, and stay."""
    return task(f"{stage}({(BEFORE | INSIDE)[stage]}): {BUSY}").write(folder)


@pytest.mark.parametrize("stage", ["setup", pytest.param("build_data", marks=pytest.mark.long)])
def test_ctrl_c_ends_every_rank_with_a_line(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ranks = Ranks(tmp_path / "ranks", 2)
    ranks.start(as_program, busy_in(stage, tmp_path))
    for rank, process in enumerate(ranks.processes):
        patience.until((tmp_path / f"busy-{rank}").exists)
        process.send_signal(signal.SIGINT)
    assert ranks.end() == [130, 130]
    for rank in range(2):
        said = [line for line in ranks.log(rank).splitlines() if "castoff train: " in line or "Trace" in line]
        assert len(said) == 1 and f"KeyboardInterrupt in {stage} (wrong.py:" in said[0], said
    assert "[RANK 1] " in ranks.log(1)


def pressed(press: Callable[[], None], is_over: Callable[[], bool]) -> None:
    """Ctrl-C, again and again until it is over: in the training loop the first one asks for a stop."""

    def once_more() -> bool:
        if not (over := is_over()):
            press()
        return over

    patience.until(once_more)


def has_ended(process: subprocess.Popen[bytes] | ForkedRank) -> bool:
    return process.poll() is not None


@pytest.mark.long
@pytest.mark.parametrize("stage", INSIDE)
def test_ctrl_c_twice_ends_a_loop_at_once(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ranks = Ranks(tmp_path / "ranks", 2)
    ranks.start(as_program, busy_in(stage, tmp_path))
    there = [0] if stage == "export" else [0, 1]
    for rank in there:
        patience.until((tmp_path / f"busy-{rank}").exists)
    for process in ranks.processes:
        pressed(partial(process.send_signal, signal.SIGINT), partial(has_ended, process))
    codes = ranks.end()
    for rank in there:
        assert codes[rank] == -signal.SIGINT
        assert "Traceback" not in ranks.log(rank) and "castoff train: " not in ranks.log(rank)
    if stage == "export":  # where rank 1 waits, and cannot hear until rank 0 is gone
        assert codes[1] != 0
        given = "[RANK 1] castoff train: rank 0 (127.0.0.1), which keeps the ranks' store, is gone"
        assert ranks.log(1).count(given) == 1
        assert ranks.log(1).count("Exception raised from") <= 1


@pytest.mark.costly
def test_ctrl_c_twice_ends_what_launch_has_started(tmp_path: Path) -> None:
    words = [COMMAND, "launch", "-n", "2", "--", sys.executable, busy_in("loss", tmp_path)]
    log = tmp_path / "shown"
    with log.open("w") as shown:
        launched = subprocess.Popen(
            [*map(str, words)], cwd=tmp_path, stdout=shown, stderr=shown, start_new_session=True
        )
    for rank in range(2):
        patience.until((tmp_path / f"busy-{rank}").exists)
    pressed(partial(os.killpg, launched.pid, signal.SIGINT), lambda: "castoff: killed " in log.read_text())
    assert launched.wait(patience.SECONDS) == 130
    shown_lines = log.read_text().splitlines()
    said = [line for line in shown_lines if not re.match(r"\[[01]\] (\[RANK [01]\] .* INFO[ :]|    )", line)]
    assert said[0].startswith("castoff: 2 ranks on ")
    assert said[1:] == [
        "castoff: SIGINT: asked the ranks to stop (SIGTERM); a second one kills them",
        "castoff: killed 2 processes that had not ended on SIGTERM",
        "castoff: stopped by SIGINT",
    ]


@pytest.mark.long
def test_a_program_that_spawns_its_ranks(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(SPAWNED)
    shown = run(tmp_path, sys.executable, program, str(free_port()))
    assert shown.code == 1
    assert shown.text.count(MARK) == 1, shown.text
    assert "-- Process 2 terminated with the following error:" in shown.text
