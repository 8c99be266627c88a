"""The program that generates proteins, on a run that has just been trained."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.sedd.alphabet import RESIDUES, Tokens
from castoff.trainers.sedd.generate import main
from castoff.trainers.sedd.synthetic import LENGTHS
from castoff.trainers.sedd.task import SeddTask


def trained_in(folder: Path, **judged: Any) -> Path:
    """The folder of a training of two steps."""
    given: dict[str, Any] = {
        "name": "sedd",
        "training": {
            "path": str(folder),
            "num_steps": 2,
            "batch_size": 4,
            "device": "cpu",
            "ema_decay": 0.9,
            "optimizer_type": PyObject("torch.optim.AdamW"),
        },
        "validation": judged,
        "task": PyObject("castoff.trainers.sedd.task.SeddTask"),
        "task_kwargs": {
            "data": {"synthetic": 30, "split": [0.8, 0.2, 0.0]},
            "model": {"hidden_size": 16, "n_blocks": 1, "n_heads": 2, "cond_dim": 8},
            "sampling": {"steps": 4, "number": 3},
        },
    }
    trainer = TrainerDDP(0, given)
    train, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(train, validation)
    return trainer.folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_in(tmp_path_factory.mktemp("trained"))


def fasta(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, str]]:
    main(words)
    lines = capsys.readouterr().out.splitlines()
    return list(zip(lines[::2], lines[1::2], strict=True))


def test_proteins_as_long_as_those_that_were_learned_from(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proteins = fasta(capsys, str(run), "--number", "5", "--batch_size", "2")
    assert [name.split()[:2] for name, _ in proteins] == [
        [f">sedd_{number}", "step-0000000002"] for number in range(1, 6)
    ]
    assert all(set(letters) <= set(RESIDUES) and len(letters) in LENGTHS for _, letters in proteins)
    assert len({len(letters) for _, letters in proteins}) > 1


def test_the_same_seed_gives_the_same(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(run), "--number", "2", "--length", "30", "--predictor", "euler", "--steps", "3")
    first = fasta(capsys, *words)
    assert [len(letters) for _, letters in first] == [30, 30]
    assert fasta(capsys, *words) == first
    assert fasta(capsys, *words, "--seed", "1")[0][1] != first[0][1]


def newest(run: Path) -> Path:
    found = Checkpoints(run / "checkpoints").newest()
    assert found is not None
    return found


def test_it_is_the_averaged_model_that_generates_as_it_is_set(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(self: SeddTask, model: nn.Module, *_: Any) -> list[Tokens]:
        averaged, last = (load_part(newest(run), part) for part in ("ema", "model"))
        weights = model.state_dict()
        assert not model.training
        assert all(weights[name].equal(each) for name, each in averaged.items())
        assert not all(weights[name].equal(each) for name, each in last.items())
        asked.append((self.settings.sampling.predictor, self.settings.sampling.steps))
        return []

    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(SeddTask, "generate", generate)
    for words in ([], ["--steps", "3"], ["--predictor", "euler"]):
        main([str(run), "--length", "5", *words])
    assert asked == [("analytic", 4), ("analytic", 3), ("euler", 4)]


def test_it_is_the_best_model_that_generates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worse(self: SeddTask, *_: Any) -> dict[str, Any]:
        return {"loss": (float(self.state.step), 1)}

    monkeypatch.setattr(SeddTask, "evaluate", worse)
    worst = trained_in(tmp_path, every_steps=1)
    assert newest(worst).name == "step-0000000002"
    assert "step-0000000001" in fasta(capsys, str(worst), "--length", "5")[0][0]


def test_a_checkpoint_that_is_damaged(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy, symlinks=True)
    (newest(copy) / "ema.pt").rename(newest(copy) / "gone")
    with pytest.raises(SystemExit, match=r"generate: .*the best checkpoint, .* is damaged"):
        main([str(copy), "--length", "60"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], r"nowhere: is not a run's folder: it has no config.yaml"),
        (["RUN", "--device", "xpu"], r"generate: --device is xpu"),
    ],
)
def test_mistakes(words: list[str], says: str, run: Path) -> None:
    with pytest.raises(SystemExit, match=says):
        main([str(run) if word == "RUN" else word for word in words])


@pytest.mark.parametrize("words", [["--number", "0"], ["--length", "-1"], ["--steps", "x"]])
def test_numbers(words: list[str], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(run), *words])
    assert re.search(r"is '.*', but takes a whole number of at least 1", capsys.readouterr().err)


def test_a_seed_is_one_that_torch_takes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fasta(capsys, str(run), "--number", "1", "--length", "5", "--seed", str(2**63 - 1))
    with pytest.raises(SystemExit):
        main([str(run), "--seed", str(2**64)])
    assert "is '18446744073709551616', but takes a whole number from 0 to 92233" in capsys.readouterr().err


def test_what_is_generated_is_measured_after_each_validation(run: Path) -> None:
    text = (run / "metrics.jsonl").read_text()
    for name in ("avg_length", "distinct", "residue_distance", "pair_distance", "aa_freq_A", "aa_freq_Y"):
        assert f'"generation/{name}"' in text
