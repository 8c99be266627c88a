"""What a program does around a training that fails or is interrupted."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import patience
from tests.mistakes.programs import task
from tests.mistakes.test_mistakes import as_program
from tests.trainers.toys import Ranks, Toy, config
from trainers import train

pytestmark = pytest.mark.usefixtures("for_real")


class Bad(Toy):
    """Rank 1 has an error of its own."""

    def loss(self, model: Any, batch: Any) -> Any:
        if self.state.step == 3 and os.environ["RANK"] == "1":
            raise ValueError("a sample is bad")
        return super().loss(model, batch)


def catches(folder: Path) -> str:
    """Goes on after the error until it is told that the others have ended."""
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


STAGES = {"setup": "setup(self, place): ", "build_data": "build_data(self): "}


@pytest.mark.parametrize("stage", ["setup", pytest.param("build_data", marks=pytest.mark.long)])
def test_ctrl_c_ends_every_rank_with_a_line(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    busy = "open(f'busy-{RANK}', 'w').close(); time.sleep(10000)"
    program = task(STAGES[stage] + busy).write(tmp_path)
    ranks = Ranks(tmp_path / "ranks", 2)
    ranks.start(as_program, program)
    for rank, process in enumerate(ranks.processes):
        patience.until((tmp_path / f"busy-{rank}").exists)
        process.send_signal(signal.SIGINT)
    assert ranks.end() == [130, 130]
    for rank in range(2):
        said = [line for line in ranks.log(rank).splitlines() if "castoff train: " in line or "Trace" in line]
        assert len(said) == 1 and f"KeyboardInterrupt in {stage} (wrong.py:" in said[0], said
    assert "[RANK 1] " in ranks.log(1)
