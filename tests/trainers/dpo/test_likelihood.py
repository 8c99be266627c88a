"""What is learned from structures' own sequences."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.dpo.alphabet import KINDS
from castoff.trainers.dpo.export import BEST, LATEST
from castoff.trainers.dpo.likelihood import LikelihoodTask
from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.weights import load
from castoff.trainers.dpo.samples.batch import Backbones, Batch
from castoff.trainers.task.training_state import TrainingState
from tests.trainers.dpo.small import likelihood_sections, structures

CPU = torch.device("cpu")


def task(folder: Path, **sections: Any) -> LikelihoodTask:
    made = LikelihoodTask(**likelihood_sections(folder, **sections))
    made.state = TrainingState(0, 0, CPU)
    made.setup(RankContext(0, 1, CPU, alone=True))
    return made


def batch_of(which: LikelihoodTask, number: int = 4) -> Batch:
    torch.manual_seed(3)
    train = which.build_data().train
    return which.collate([train[index] for index in range(number)])


class Sure(nn.Module):
    """Puts a weight on the right residue, and none on the others."""

    def __init__(self, weight: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, backbones: Backbones, sequences: Tensor, order: Tensor) -> Tensor:
        return self.weight * nn.functional.one_hot(sequences, KINDS).float()


def test_the_loss_is_a_mean_over_designed_residues(tmp_path: Path) -> None:
    which = task(tmp_path)
    batch = batch_of(which)
    loss = which.loss(Sure(0.0), batch)
    assert loss.count == batch.designed.sum() and 0 < int(batch.designed.sum()) < batch.designed.numel()
    assert isinstance(loss.count, Tensor)
    torch.testing.assert_close(loss.total.detach() / loss.count, torch.tensor(KINDS).log())


def test_smoothing_is_for_training_alone(tmp_path: Path) -> None:
    """With it, it does not pay to be sure."""
    which = task(tmp_path)
    batch = batch_of(which)
    sure, quite = (float(which.loss(Sure(weight), batch).total.detach()) for weight in (30.0, 5.0))
    assert sure > quite
    with torch.no_grad():
        found = which.evaluate(Sure(30.0), batch)
    assert float(found["loss"][0]) == pytest.approx(0, abs=1e-3)
    assert float(found["accuracy/teacher_forced"][0]) == batch.designed.sum()
    plain = task(tmp_path, model={"label_smoothing": 0.0})
    assert plain.loss(Sure(30.0), batch).total.detach() == pytest.approx(0, abs=1e-3)


def test_measures(tmp_path: Path) -> None:
    which = task(tmp_path)
    found = which.finish({"loss": (300.0, 100.0), "accuracy/teacher_forced": (20.0, 100.0)})
    assert found == {"loss": 3.0, "accuracy/teacher_forced": 0.2, "perplexity": pytest.approx(math.exp(3))}
    assert math.isfinite(which.finish({"loss": (1e9, 1.0)})["perplexity"])
    assert which.finish({}) == {}  # an empty test set


def test_noise_and_dropout_are_for_training_alone(tmp_path: Path) -> None:
    which = task(tmp_path, model={"backbone_noise": 0.5})
    splits = which.build_data()
    train, validation = splits.train, splits.validation
    first, second = train[0].atoms, train[0].atoms
    assert 0.1 < float((first - second).abs()[train[0].resolved].mean()) < 2
    assert torch.equal(validation[0].atoms, validation[0].atoms)
    assert not torch.equal(train[0].order, train[0].order)  # another one in each epoch
    assert which.build_model().encoder_layers[0].dropout == 0.1  # type: ignore[union-attr, index]


def test_recovery_is_of_sequences_that_are_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not of residues that are guessed with all others before them shown; and it is the same again."""
    which = task(tmp_path, number=40, data={"validation_share": 0.5})
    torch.manual_seed(0)
    caplog.set_level(logging.INFO)
    model = which.build_model().eval()
    found = which.after_evaluation(model)
    torch.manual_seed(5)
    assert which.after_evaluation(model) == found
    assert set(found) == {"recovery/sampled", "recovery/most_frequent"}
    assert 0 < found["recovery/most_frequent"] < 0.5
    # A network that gives one residue whatever there is recovers as many as that one is frequent.
    assert isinstance(model, InverseFolding)
    validation = which.build_data().validation
    natives = torch.cat([each.sequences[0][each.designed] for each in validation])
    with torch.no_grad():
        model.W_out.weight.zero_()
        model.W_out.bias.zero_()
        model.W_out.bias[int(natives.mode().values)] = 50.0
    found = which.after_evaluation(model)
    assert found["recovery/sampled"] == pytest.approx(found["recovery/most_frequent"], rel=0.5)
    assert f"sampled for 16 chains: {found['recovery/sampled']:.3f}; " in caplog.text
    few = task(tmp_path, number=3, data={"validation_share": 0.5})
    assert few.after_evaluation(model)  # of one chain, where there is but one


def test_files_may_be_moved_and_others_are_refused(tmp_path: Path) -> None:
    before = task(tmp_path).state_dict()
    assert len(json.dumps(before)) < 500
    structures(tmp_path / "again", 12)
    same = task(tmp_path, data={"structures": str(tmp_path / "again")})
    same.load_state_dict(before)
    structures(tmp_path / "others", 12, seed=1)
    others = task(tmp_path, data={"structures": str(tmp_path / "others")})
    with pytest.raises(ConfigError) as refused:
        others.load_state_dict(before)
    folder = tmp_path / "others"
    assert f"data.structures: {folder} holds other chains (digest " in str(refused.value)
    assert f"data.structures: {folder} holds other chains to validate with (digest" in str(refused.value)
    another = task(tmp_path, data={"validation_structures": str(folder)})
    with pytest.raises(ConfigError, match=r"data.validation_structures: .* holds other chains to validate"):
        another.load_state_dict(before)


def test_what_makes_no_sense(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        LikelihoodTask(data={"structures": "x", "max_lenght": 3}, model={"dropout": 1.0})
    assert "data.max_lenght: there is no such field; did you mean" in str(refused.value)
    assert "model.dropout: is 1.0, but takes a number" in str(refused.value)


def test_export(tmp_path: Path) -> None:
    which = task(tmp_path, model={"backbone_noise": 0.3})
    which.state.epoch = 7
    model = which.build_model()
    which.export(model, tmp_path, better=True)
    for name in (LATEST, BEST, "checkpoint_epoch_7.pt"):
        again = load(tmp_path / name)
        assert again.noise_level == 0.3
        for key, value in model.state_dict().items():
            assert torch.equal(again.model.state_dict()[key], value)


@pytest.mark.parametrize("field", ["structures", "validation_structures", "test_structures"])
def test_a_folder_that_is_not_there_is_reported_by_its_field(field: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"data.{field}: is 'nowhere', but there is no such folder"):
        task(tmp_path, data={field: "nowhere"})
