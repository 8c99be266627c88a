"""The program: a real training from the command line, and how it ends when something is wrong."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.yaml_text import read_yaml_file
from castoff.trainers.sedd import __main__ as program
from castoff.trainers.sedd.start.configuration import read
from castoff.trainers.sedd.start.translation import core_config
from tests.trainers.logged import unwrapped
from tests.trainers.sedd.start.test_ranks import TINY


class Here:
    """The program in this process, which has loaded torch already."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.capfd = capfd
        self.stdout = self.stderr = ""
        (folder / "tiny.yaml").write_text(TINY)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", list(sys.path))

    def __call__(self, *words: str) -> int:
        """Its exit code."""
        self.monkeypatch.setattr(sys, "argv", ["castoff.trainers.sedd", *words])
        code: Any = 0
        try:
            program.main()
        except SystemExit as ended:
            code = ended.code
        self.stdout, self.stderr = self.capfd.readouterr()
        return int(code or 0)

    def lines(self, run: str = "sedd") -> list[dict[str, Any]]:
        """Of metrics.jsonl."""
        text = (self.folder / "out" / run / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Here]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield Here(tmp_path, monkeypatch, capfd)
    root.setLevel(level)
    root.handlers[:] = handlers


ONE_LINE = pytest.mark.filterwarnings("ignore:No artists with labels")
"""One point makes no curve, so the picture's legend may be empty."""


@ONE_LINE
def test_one_clock_whatever_is_accumulated(here: Here) -> None:
    """Iterations, the learning rate and validations all count optimizer steps."""
    words = ["--set", "training.accum=3", "--set", "validation.eval_freq=2"]
    words += ["--set", "lr_schedule.min_lr_ratio=0.5", "--set", "optim.lr=0.01", "--work_dir", "out"]
    assert here("tiny.yaml", *words) == 0, here.stderr
    lines = here.lines()
    rates = {line["step"]: line["train/lr"] for line in lines if "train/lr" in line}
    assert list(rates) == [1, 2, 3, 4]
    assert [line["step"] for line in lines if "val/loss" in line] == [2, 4]
    assert rates[1] == pytest.approx(0.01) and rates[4] == pytest.approx(0.00625)  # a step before the end
    assert "test loss" in here.stdout and "test perplexity" in here.stdout


@ONE_LINE
def test_it_begins_with_a_checkpoint_of_another_run(here: Here) -> None:
    assert here("tiny.yaml") == 0, here.stderr
    assert here("tiny.yaml", "--resume_checkpoint", "out/sedd", "--set", "training.run=more") == 0, (
        here.stderr
    )
    assert "Resuming from out/sedd/checkpoints/step-0000000004" in here.stderr


def test_without_arguments_it_starts(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[Config] = []
    monkeypatch.setattr(program, "_train", trained.append)
    assert here() == 0, here.stderr
    assert trained == [core_config(read({}))]
    assert "WARNING: data.datafile is not given: training on 4000 synthetic proteins" in here.stderr


def test_with_a_data_file_nothing_is_warned_of(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_train", lambda _: None)
    assert here("tiny.yaml", "--datafile", "x.fasta", "--set", "data.synthetic=4000") == 0
    assert here.stderr == ""


def test_what_has_no_effect_is_logged(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_train", lambda _: None)
    assert here("tiny.yaml", "--set", "validation.save_best_only=true") == 0
    assert "INFO: validation.save_best_only: has no effect;" in here.stderr


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("optim.warmup=9", "optim.warmup: is 9, but the training has 4 steps"),
        ("model.n_heads=3", "model.n_heads: is 3, but model.hidden_size, which is 8, must be"),
        ("noise.eps=0.5", "noise.eps: is 0.5, so that at time 1 noise has reached 50.0% of"),
        ("parallel.world_size=2", "parallel.world_size: is 2, but this process has not joined a group"),
        ("training.work_dir=$NOT_SET/x", "training.work_dir: is '$NOT_SET/x', but NOT_SET is not"),
        ("training.work_dir=tiny.yaml", "training.work_dir: tiny.yaml/sedd: Not a directory"),
        ("training.resume_checkpoint=x", "training.resume_checkpoint: is 'x', but there is no"),
        (
            "logging.wandb={project: p, mode: x}",
            "--set logging.wandb={project: p, mode: x}: logging.wandb.mode: is 'x', but takes one of offline",
        ),
    ],
)
def test_mistakes_are_reported_with_the_files_fields(override: str, says: str, here: Here) -> None:
    """Also what the core finds later."""
    assert here("tiny.yaml", "--set", override) == 1
    given = [line for line in unwrapped(here.stderr).splitlines() if not line.startswith("[RANK 0]")]
    assert given[0].startswith(f"castoff train: {says}"), here.stderr


@ONE_LINE
@pytest.mark.long
def test_what_changes_on_the_way_is_logged_by_the_files_fields(here: Here) -> None:
    assert here("tiny.yaml") == 0, here.stderr
    assert here("tiny.yaml", "--set", "training.n_iters=5", "--set", "optim.grad_clip=2") == 0, here.stderr
    assert "training.n_iters: was 4 until step 4, is 5 from here on" in unwrapped(here.stderr)
    assert "optim.grad_clip: was 1.0 until step 4, is 2.0 from here on" in unwrapped(here.stderr)
    assert here("tiny.yaml", "--set", "training.n_iters=5", "--set", "optim.grad_clip=2") == 0, here.stderr
    assert "Nothing is left to train in out/sedd" in here.stderr
    assert "to train longer, set a larger training.epochs or n_iters" in unwrapped(here.stderr)


@ONE_LINE
def test_another_configuration_is_refused_by_the_files_fields(here: Here) -> None:
    assert here("tiny.yaml") == 0, here.stderr
    assert here("tiny.yaml", "--set", "training.accum=2", "--set", "training.ema=null") == 1
    assert "castoff train: training.accum: the global batch, batch_size x accum x ranks, is" in here.stderr
    assert "castoff train: training.ema: is null, but " in here.stderr


def test_a_file_that_is_not_there(here: Here) -> None:
    assert here("none.yaml") == 1
    assert here.stderr.startswith("castoff train: none.yaml: no such file")


def test_the_example_is_what_the_core_takes() -> None:
    example = Path(__file__).parents[3] / "examples" / "sedd.yaml"
    config = core_config(read(read_yaml_file(example)))
    assert (config.training.precision, config.training.compile) == ("bf16", True)
