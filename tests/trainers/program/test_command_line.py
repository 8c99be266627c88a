"""The command line of every training system, and Ctrl-C at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from castoff.trainers.configuration.config import Config
from castoff.trainers.program import command_line
from castoff.trainers.reporting.metrics_file import MetricsFile
from tests import patience
from tests.patience import until
from tests.trainers.logged import unwrapped
from tests.trainers.toys import config

ROOT = Path(__file__).parents[3]


def written(folder: Path, **training: Any) -> Path:
    fields = config(folder / "out", **training)
    fields["training"]["optimizer_type"] = "torch.optim.AdamW"
    path = folder / "toy.yaml"
    path.write_text(yaml.safe_dump(fields).replace("torch.optim", "!pyobject torch.optim"))
    return path


@pytest.mark.parametrize(
    ("words", "fresh"),
    [
        ([], True),
        (["--fresh"], True),
        (["--resume"], False),
        (["--set", "training.fresh=false"], False),
        (["--set", "training.fresh=false", "--fresh"], True),
    ],
)
def test_resuming_or_starting_fresh(
    words: list[str], fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line wins over the file."""
    trained: list[Config] = []
    monkeypatch.setattr(sys, "argv", ["castoff.trainers.toy", str(written(tmp_path, fresh=True)), *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    command_line.run("toy", "Train a toy.", (), trained.append)
    assert [each.training.fresh for each in trained] == [fresh]


def test_a_variable_in_a_path_that_is_not_set_is_reported_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [str(written(tmp_path)), "--set", "training.path=$NOWHERE/runs"]
    monkeypatch.setattr(sys, "argv", ["castoff.trainers.toy", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(SystemExit) as ended:
        command_line.run("toy", "Train a toy.", (), lambda _: pytest.fail("it trained"))
    assert ended.value.code == 1
    assert "training.path: is '$NOWHERE/runs', but NOWHERE is not set here" in capfd.readouterr().err


def test_not_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["castoff.trainers.toy", str(written(tmp_path)), "--fresh", "--resume"])
    with pytest.raises(SystemExit) as ended:
        command_line.run("toy", "Train a toy.", (), lambda _: pytest.fail("it trained"))
    assert ended.value.code == 2
    assert "--resume excludes --fresh: drop one of the two" in capsys.readouterr().err


OWN = """
from tests.trainers.toys import Toy
from castoff.trainers import Config, train
train(Config.load("toy.yaml"), Toy(pause={pause}))
"""


@pytest.mark.usefixtures("for_real")
@pytest.mark.long  # torch is imported six times
def test_ctrl_c_under_launch_and_the_same_command_again(tmp_path: Path) -> None:
    """Its code says that it is not done; it resumes where it was; then it says that it is over."""
    written(tmp_path, num_epochs=2)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    metrics = MetricsFile(tmp_path / "out" / "toy" / "metrics.jsonl")
    command = ["castoff", "launch", "-n", "2", "--", sys.executable, "own.py"]

    def start(pause: float) -> subprocess.Popen[str]:
        (tmp_path / "own.py").write_text(OWN.format(pause=pause))
        given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, env=environ, start_new_session=True, **given)

    def last_step() -> int:
        return max((line["step"] for line in metrics.read()), default=0) if metrics.path.exists() else 0

    first = start(0.1)
    until(lambda: last_step() >= 3 or first.poll() is not None)
    os.killpg(first.pid, signal.SIGINT)
    said, _ = first.communicate(timeout=patience.SECONDS)
    assert first.returncode == 75, said
    reached = last_step()
    assert f"Stopped early at step {reached} (TERM); it can be resumed from there" in unwrapped(said)
    assert "run the same command again" in said
    answers = []
    for _ in range(2):
        again = start(0.0)
        said, _ = again.communicate(timeout=patience.SECONDS)
        assert again.returncode == 0, said
        answers.append(unwrapped(said))
    assert f"step-{reached:010d}: epoch" in answers[0] and "Nothing is left" not in answers[0]
    assert "Nothing is left to train in " in answers[1] and "--fresh" in answers[1]
    assert [line["step"] for line in metrics.read() if "train/loss" in line] == [*range(1, last_step() + 1)]
