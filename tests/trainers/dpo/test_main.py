"""The program: a base model from structures, tuned by preferences, and what the same command does again."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from castoff.trainers.dpo import __main__ as program
from castoff.trainers.dpo.network.weights import load
from castoff.trainers.reporting.metrics_file import MetricsFile
from tests.trainers.dpo.small import SIZES, base_model, pairs_file, structures
from tests.trainers.logged import unwrapped


class Here:
    """The program in this process, which has loaded torch already."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.capfd = capfd
        self.stdout = self.stderr = ""
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", list(sys.path))

    def __call__(self, *words: str) -> int:
        """Its exit code."""
        self.monkeypatch.setattr(sys, "argv", ["castoff.trainers.dpo", "--no_cuda", *words])
        code: Any = 0
        try:
            program.main()
        except SystemExit as ended:
            code = ended.code
        self.stdout, self.stderr = self.capfd.readouterr()
        return int(code or 0)

    def tuned(self, *words: str) -> int:
        """The same, on pairs that are there; what is said twice counts as it is said last."""
        least = "--train_data pairs.json --base_model_dir . --base_model_name base --output_dir out --lr 1e-3"
        return self(*least.split(), "--num_epochs", "1", "--batch_size", "4", *words)

    def logged(self, line: str) -> bool:
        """Whether the log or an error has it."""
        return re.search(line, unwrapped(self.stderr)) is not None


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Here]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield Here(tmp_path, monkeypatch, capfd)
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def with_pairs(here: Here) -> Here:
    pairs_file(here.folder / "pairs.json", 10)
    base_model(here.folder / "base.pt")
    return here


pytestmark = pytest.mark.filterwarnings("ignore:No artists with labels")
"""One point makes no curve, so the picture's legend may be empty."""

MODELS = ["best_model.pt", "checkpoint_epoch_1.pt", "latest_model.pt"]


def test_from_structures_to_a_tuned_model(here: Here) -> None:
    """A base model is made, and tuned as it lies there; what comes out is in the same format."""
    structures(here.folder / "structures", 12)
    pairs_file(here.folder / "pairs.json", 10)
    sizes = [word for name, size in SIZES.items() for word in ("--set", f"model.{name}={size}")]
    words = ["--objective", "likelihood", "--structures", "structures", "--output_dir", "outputs/base/"]
    small = ["--set", "data.min_length=5", "--num_epochs", "1", "--batch_size", "4"]
    assert here(*words, *sizes, *small) == 0, here.stderr
    assert here.logged(r"Loaded 10 training and 2 validation chains"), here.stderr
    base = here.folder / "outputs" / "base"
    assert sorted(each.name for each in base.glob("*.pt")) == MODELS
    words = ["--base_model_dir", str(base), "--base_model_name", "best_model", "--test_data", "pairs.json"]
    assert here.tuned(*words) == 0, here.stderr
    assert here.logged(r"Loaded 9 training and 1 validation pairs")
    assert "test rewards/accuracies" in here.stdout
    out = here.folder / "out"
    assert sorted(each.name for each in out.glob("*.pt")) == MODELS
    assert (out / "checkpoints").is_dir()
    assert (
        load(out / "best_model.pt").model.state_dict().keys()
        == load(base / MODELS[0]).model.state_dict().keys()
    )


def test_the_same_command_again_and_more_of_it(with_pairs: Here) -> None:
    assert with_pairs.tuned() == 0, with_pairs.stderr
    assert with_pairs.tuned() == 0, with_pairs.stderr
    assert with_pairs.logged("Nothing is left to train in out")
    assert with_pairs.tuned("--num_epochs", "2", "--lr", "1e-2") == 0, with_pairs.stderr
    assert with_pairs.logged(r"training\.num_epochs \(--num_epochs\): was 1 until step 3, is 2 from here on")
    assert with_pairs.logged(r"training\.optimizer_kwargs\.lr \(--learning_rate\): 0\.01 from here on")
    assert with_pairs.logged("Epoch 2/2") and not with_pairs.logged("Epoch 1/2")
    lines = MetricsFile(with_pairs.folder / "out" / "metrics.jsonl").read()
    assert [line["step"] for line in lines if "val/loss" in line] == [3, 6]


OTHERS = {
    "--beta 0.2": r"preference\.beta \(--beta\): is 0\.2, but out/checkpoints/step-\d+ was made with 0\.1",
    "--loss ipo": r"preference\.loss \(--loss\): is ipo, but .* was made with sigmoid",
    "--seed 1": r"training\.seed \(--seed\): is 1, but .* was made with 0",
    "--batch_size 2": r"\(--batch_size\): the global batch.* is 2 x 1 x 1 = 2, but .* = 4; training\.batch_s",
    "--base_model_name other": r"base_model\.name \(--base_model_name\): other in \. has other weights",
    "--train_data more.json": r"data\.train_data \(--train_data\): more\.json holds other pairs",
}


def test_another_training_is_refused_in_the_same_folder(with_pairs: Here) -> None:
    """And the one that is there stays as it was."""
    assert with_pairs.tuned() == 0, with_pairs.stderr
    base_model(with_pairs.folder / "other.pt", seed=1)
    pairs_file(with_pairs.folder / "more.json", 10, seed=1)
    files = sorted((with_pairs.folder / "out").rglob("*.pt"))
    before = [path.read_bytes() for path in files]
    for words, said in OTHERS.items():
        assert with_pairs.tuned(*words.split(), "--num_epochs", "2") == 1
        assert with_pairs.logged(said), with_pairs.stderr
    assert sorted((with_pairs.folder / "out").rglob("*.pt")) == files
    assert [path.read_bytes() for path in files] == before


def test_begun_anew_beside_it(with_pairs: Here) -> None:
    assert with_pairs.tuned() == 0, with_pairs.stderr
    assert with_pairs.tuned("--beta", "0.2", "--fresh") == 0, with_pairs.stderr
    for folder in ("out", "out.1"):
        assert sorted(each.name for each in (with_pairs.folder / folder).glob("*.pt")) == MODELS


@pytest.mark.long
def test_a_folder_that_was_there_before(with_pairs: Here) -> None:
    """Its files stay; one with models that nobody here has made is left alone, or set aside."""
    out = with_pairs.folder / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert with_pairs.tuned() == 0, with_pairs.stderr
    assert (out / "notes.txt").read_text() == "mine"
    (with_pairs.folder / "theirs").mkdir()
    (with_pairs.folder / "theirs" / "best_model.pt").write_text("theirs")
    assert with_pairs.tuned("--output_dir", "theirs") == 1
    assert with_pairs.logged(r"training\.run \(--output_dir\): theirs holds best_model\.pt, which would be")
    assert with_pairs.tuned("--output_dir", "theirs", "--fresh") == 0, with_pairs.stderr
    assert (with_pairs.folder / "theirs.1" / "best_model.pt").read_text() == "theirs"


@pytest.mark.parametrize("place", ["notes", "notes/out"])
def test_a_file_where_the_folder_would_be(place: str, with_pairs: Here) -> None:
    (with_pairs.folder / "notes").write_text("mine")
    assert with_pairs.tuned("--output_dir", place) == 1
    assert with_pairs.logged(
        rf"training\.run \(--output_dir\): is {place}, but .*notes is not a folder; name"
    )
    assert not list(with_pairs.folder.glob("*.reference"))


def test_an_empty_command_reports_every_missing_field(here: Here) -> None:
    assert here("--beta", "0") == 1
    assert here.stderr.splitlines() == [
        "castoff train: command line: training.path (--output_dir): is missing; it takes text",
        "castoff train: command line: data.train_data (--train_data): is missing; it takes text",
        "castoff train: command line: base_model.dir (--base_model_dir): is missing; it takes text",
        "castoff train: command line: preference.beta (--beta): is 0, but takes a number above 0",
    ]
    assert list(here.folder.iterdir()) == []


def test_a_file_and_what_is_wrong_in_it(here: Here) -> None:
    (here.folder / "c.yaml").write_text("preference: {beta: -1, temperatur: 1}\ndata: {train_data: a.json}\n")
    assert here("c.yaml", "--output_dir", "out", "--base_model_dir", "b") == 1
    assert sorted(here.stderr.splitlines()) == [
        "castoff train: c.yaml:1: preference.beta (--beta): is -1, but takes a number above 0",
        "castoff train: c.yaml:1: preference.temperatur: there is no such field; did you mean temperature?",
    ]
    assert here("none.yaml") == 1
    assert here.logged("none.yaml: no such file")
