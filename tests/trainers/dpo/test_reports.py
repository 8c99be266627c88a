"""What the log of a training says of each epoch: once, in order, the same on any number of ranks."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from castoff.trainers.data.sampling import shard
from castoff.trainers.dpo.reports import EpochReports
from castoff.trainers.dpo.start.configuration import read
from castoff.trainers.dpo.training import train
from castoff.trainers.program import training as program
from castoff.trainers.task import Splits
from tests.trainers.logged import unwrapped
from tests.trainers.toys import Ranks, Toy

DPO = {"data": {"train_data": "p.json"}, "base_model": {"dir": "b"}}
LIKELIHOOD = {"objective": "likelihood", "data": {"structures": "pdb"}}


class Stand(Toy):
    """A quick task in the place of preferences: 32 samples, and 5 to validate with."""

    def __init__(self, validation: int = 5):
        super().__init__(dropout=0.0)
        self.validation = validation

    def build_data(self) -> Splits:
        numbers = torch.randn(32 + self.validation, 8, generator=torch.Generator().manual_seed(0))
        samples = TensorDataset(numbers, numbers.sum(1, keepdim=True))
        parts = [range(32), range(32, len(samples)), range(0)]
        return Splits(*(torch.utils.data.Subset(samples, part) for part in parts))


def trained(folder: str, fields: dict[str, Any], task: Stand, **training: Any) -> None:
    given = {"path": folder, "device": "cpu", "num_epochs": 2, "log_every": 1000, **training}
    program.train(read({**fields, "training": given}), task, reports=EpochReports)


def said(log: str) -> list[str]:
    """The lines of rank 0's log that are one of those looked for, without rank, time and logger."""
    found = re.findall(r"^\[RANK 0\] \S+(?: \S+)? INFO: (.*)$", unwrapped(log), re.MULTILINE)
    words = ("Initialized", "Using", "Loaded", "Batch", "Epoch", "Training: ", "Validation: ", "  ")
    return [line for line in found if line.startswith(words)]


def matches(lines: list[str], expected: list[str]) -> None:
    """Line by line; # stands for a number with four digits behind its point, … for anything."""
    patterns = [re.escape(line).replace(r"\#", r"\d+\.\d{4}").replace("…", ".*") for line in expected]
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


EPOCH = [
    "Training: 16/16 [00:…, loss=#, avg_loss=#]",
    "Validation: loss=…",
]


def test_two_ranks_print_each_line_once(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", 2)
    ranks.start(trained, str(tmp_path / "out"), DPO, Stand())
    ranks.answers()
    expected = [
        "Initialized DDP: rank=0, world_size=2, local_rank=0",
        "Using device: cpu",
        "Loaded 32 training and 5 validation pairs",
        "Batch size per GPU: 1, Total batch size: 2",
    ]
    for number in (1, 2):
        summary = [f"Epoch {number} Summary:", "  Train Loss: #", "  Val Loss:   #"]
        expected += [f"Epoch {number}/2", *EPOCH, *summary]
    matches(said(ranks.log(0)), expected)
    assert "INFO" not in ranks.log(1)


Logged = Any


@pytest.fixture
def alone(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Logged:
    """Trains in this process, and gives the lines."""
    from castoff.trainers.program import training as module

    monkeypatch.setattr(module, "show_trainers", lambda rank, level: None)
    caplog.set_level("INFO")

    def train(fields: dict[str, Any], task: Stand, **training: Any) -> list[str]:
        caplog.clear()
        trained(str(tmp_path / "out"), fields, task, **training)
        return said("\n".join(f"[RANK 0] d t INFO: {each.message}" for each in caplog.records))

    return train


def test_a_process_alone_and_accumulation(alone: Logged) -> None:
    lines = alone(LIKELIHOOD, Stand(), batch_size=2, gradient_accumulation_steps=4, num_epochs=1)
    matches(
        lines,
        [
            "Using device: cpu",
            "Loaded 32 training and 5 validation chains",
            "Batch size per GPU: 2, Total batch size: 8 (with 4 accumulation steps)",
            "Epoch 1/1",
            "Training: 4/4 [00:…, loss=#, avg_loss=#]",
            "Validation: loss=… ± …",
            "Epoch 1 Summary:",
            "  Train Loss: #",
            "  Val Loss:   #",
        ],
    )


@pytest.mark.parametrize(("ratio", "warns"), [(1.1, False), (1.97, True)])
def test_chosen_sequences_that_get_unlikely(
    ratio: float, warns: bool, alone: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    class Unlikely(Stand):
        def finish(self, sums: Any) -> Any:
            return {**super().finish(sums), "logps/chosen_to_reference": ratio}

    alone(DPO, Unlikely(), batch_size=8, num_epochs=2)
    found = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(found) == warns  # once, not after each validation
    if warns:
        assert "is 1.97: the policy makes the preferred sequences much less likely" in found[0]
        assert "Lower the learning rate, train for fewer epochs, or raise preference.beta" in found[0]


def test_without_a_validation_the_summary_has_the_training_alone(alone: Logged) -> None:
    lines = alone(DPO, Stand(validation=0), batch_size=8, num_epochs=1)
    assert [line.partition(":")[0] for line in lines[-4:]] == [
        "Epoch 1/1",
        "Training",
        "Epoch 1 Summary",
        "  Train Loss",
    ]


def test_steps_that_end_inside_an_epoch_have_no_summary_of_it(alone: Logged) -> None:
    lines = alone(DPO, Stand(), batch_size=8, num_epochs=None, num_steps=6)
    assert [line.partition(":")[0] for line in lines[3:]] == [
        *("Epoch 1", "Training", "Validation", "Epoch 1 Summary", "  Train Loss", "  Val Loss"),
        *("Epoch 2", "Validation"),
    ]


def test_a_resumed_training_shows_its_epoch(alone: Logged) -> None:
    alone(DPO, Stand(), batch_size=8, num_epochs=1)
    lines = alone(DPO, Stand(), batch_size=8, num_epochs=2)
    assert "Epoch 2/2" in lines and "Training: 4/4" in "".join(lines)
    assert "Epoch 1/2" not in lines


def test_epochs_as_the_document_of_the_tool_that_this_one_follows_has_them() -> None:
    """372 pairs on four ranks, one at a time: 93 steps."""
    plan = partial(shard, batch_size=1, accumulation=1, drop_last=False)
    assert plan(372, world_size=4).steps == 93
    assert -(-42 // 4) == 11


@pytest.mark.parametrize("model", ["best_model.pt", "latest_model.pt", "checkpoint_epoch_3.pt"])
def test_models_that_others_have_made_are_not_written_over(model: str, tmp_path: Path) -> None:
    from castoff.trainers.configuration.fields import ConfigError

    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "notes.txt").touch()
    (folder / model).write_bytes(b"precious")
    fields = {**DPO, "training": {"path": str(tmp_path), "run": "out"}}
    with pytest.raises(
        ConfigError, match=rf"--output_dir\): .*out holds {model}, which would be overwritten"
    ):
        train(read(fields))
    assert sorted(each.name for each in folder.iterdir()) == [model, "notes.txt"]
    assert (folder / model).read_bytes() == b"precious"
