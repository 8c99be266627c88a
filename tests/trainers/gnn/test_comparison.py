"""What people read at the end: the network beside its rivals, on the sets that it has not seen."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.trainers.configuration.config import Config, Evaluator
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.gnn.baselines import FOREST, FULL_FOREST, ROUNDED, dimension_error, estimates, sets_of
from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.defaults import CRITERION, MODEL, with_defaults
from castoff.trainers.gnn.report import guess_of, report
from castoff.trainers.gnn.training import train

GRAPHS = [sample(Causets(size=(8, 16)), 0, index) for index in range(30)]
TRAIN, TEST = GRAPHS[:20], GRAPHS[20:]
CPU = torch.device("cpu")


class Knowing(nn.Module):
    """Says what is true, but for a constant error of the dimension; only where it is not training."""

    def __init__(self, *heads: int):
        super().__init__()
        self.heads = heads

    def forward(self, batch: Any) -> dict[int, Tensor]:
        assert not self.training and not torch.is_grad_enabled()
        said = {0: batch.y[:, :1] * 2 - 1, 1: batch.y[:, 1:] + 0.125}
        return {head: said[head] for head in self.heads}


def apply(model: nn.Module, batch: Any) -> Any:
    return model(batch)


def row(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}  ")]
    return line.removeprefix(name).split()


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.trainers.gnn.baselines.TREES", 5)


def test_the_network_is_reported_beside_its_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.trainers.gnn.report.TOGETHER", 4)  # so batches are put together in order
    model = Knowing(0, 1)
    found = report(apply, model, TRAIN, TEST, CPU)
    assert found is not None and model.training
    judged, measured = (
        part for part in found.text.split("\n\n") if part.startswith(("manifold", "dimension"))
    )
    assert row(judged, "this network") == ["1.0000", "1.0000"]
    assert row(measured, "this network") == ["0.1250"]
    rounded = {each.name: each for each in estimates(sets_of(TRAIN), sets_of(TEST))}[ROUNDED]
    error = dimension_error(rounded, sets_of(TEST))
    assert row(measured, ROUNDED) == [f"{error:.4f}"]
    assert {FOREST, "threshold on the ordering fraction"} < {
        line.split("  ")[0] for line in judged.splitlines()
    }
    assert set(found.lines) == {FOREST, FULL_FOREST, ROUNDED} and found.lines[ROUNDED] == pytest.approx(error)
    assert found.text.startswith("On 10 held-out causal sets, after 20 others:")
    assert "merged (" in found.text


@pytest.mark.parametrize("head", [0, 1])
def test_heads_that_are_not_active_are_left_out(head: int) -> None:
    found = report(apply, Knowing(head), TRAIN, TEST, CPU)
    assert found is not None
    assert ("manifold-like or not" in found.text) == (head == 0)
    assert ("mean error" in found.text) == (head == 1)
    assert bool(found.lines) == (head == 1)


def test_without_held_out_sets_there_is_no_report() -> None:
    assert report(apply, Knowing(0), TRAIN, [], CPU) is None
    assert guess_of(apply, Knowing(0), [], CPU).manifold_like is None


# --- At the end of a training ---------------------------------------------------------------------------

GENERATED: dict[str, Any] = {
    "training": {
        **{"path": "", "num_epochs": 1, "batch_size": 16, "device": "cpu"},
        "log_every": 1,
    },
    "data": {"causets": {"number": 60, "size": [8, 16]}},
}


@pytest.mark.filterwarnings("ignore:No artists with labels")
def test_a_training_on_generated_sets_ends_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but `data.causets` says what is trained."""
    fields = copy.deepcopy(GENERATED)
    fields["training"] |= {"path": str(tmp_path), "optimizer_type": PyObject("torch.optim.AdamW")}
    train(Config.of(fields))
    shown = capsys.readouterr().out
    (folder,) = tmp_path.glob("training*")
    tested = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][-1]
    judged, measured = (part for part in shown.split("\n\n") if part.startswith(("manifold", "dimension")))
    assert row(judged, "this network") == [f"{tested[f'test/{name}']:.4f}" for name in ("accuracy", "f1")]
    assert row(measured, "this network") == [f"{tested['test/dimension_error']:.4f}"]
    assert (folder / "curves.png").exists()


# --- What a configuration need not say ------------------------------------------------------------------

TRAINING = {"path": "x", "num_epochs": 1, "batch_size": 2, "optimizer_type": "x"}


def config(**fields: Any) -> Config:
    return Config.of({"training": TRAINING, **fields})


def test_generated_sets_have_a_network_a_criterion_and_measures() -> None:
    found = with_defaults(config(data={"causets": {}}))
    assert found.model == MODEL and found.criterion == CRITERION
    for part in (found.validation.validator, found.testing.tester):
        assert part is not None
        assert [each.name for each in part.evaluator_tasks] == ["accuracy", "f1", "dimension_error"]
    assert with_defaults(config(data={"files": ["a"]})) == config(data={"files": ["a"]})


def test_given_fields_are_kept() -> None:
    own = config(
        data={"causets": {}},
        model={"encoder_type": "mine"},
        validation={"validator": {"evaluator_tasks": []}},
    )
    found = with_defaults(own)
    assert found.model == own.model
    assert found.validation.validator == Evaluator()
    assert with_defaults(config(data={"causets": {}}, criterion="mine")).testing.tester is None


def test_given_fields_change_the_built_in_network() -> None:
    found = with_defaults(config(data={"causets": {}}, model={"encoder_kwargs": {"dropout": 0.5}}))
    assert found.model["encoder_kwargs"] == {**MODEL["encoder_kwargs"], "dropout": 0.5}


def test_a_part_of_another_type_gets_no_arguments_of_the_built_in_one() -> None:
    own = {"graph_features_net_type": "MLP", "graph_features_net_kwargs": {"channel_list": [11, 32]}}
    assert with_defaults(config(data={"causets": {}}, model=own)).model == {**MODEL, **own}
    alone = with_defaults(config(data={"causets": {}}, model={"graph_features_net_type": "identity"})).model
    assert "graph_features_net_kwargs" not in alone and "encoder_kwargs" in alone


def test_an_evaluator_that_names_a_device_alone_measures_too() -> None:
    found = with_defaults(config(data={"causets": {}}, validation={"validator": {"device": "cpu"}}))
    validator = found.validation.validator
    assert validator is not None and validator.device == "cpu" and len(validator.evaluator_tasks) == 3


def test_of_a_network_with_other_heads_those_are_measured() -> None:
    own = {"encoder_type": "mine", "downstream_tasks": [["Linear", [8, 1]]]}
    found = with_defaults(config(data={"causets": {}}, model=own)).testing.tester
    assert found is not None and [each.name for each in found.evaluator_tasks] == ["accuracy", "f1"]
    assert with_defaults(config(data={"causets": {}}, model={"type": "mine"})).testing.tester is None


@pytest.mark.parametrize("head", [1, "1"])
def test_measures_of_heads_that_are_not_active_are_left_out(head: Any) -> None:
    found = with_defaults(config(data={"causets": {}}, model={"active_tasks": {head: False}}))
    assert found.model == {**MODEL, "active_tasks": {head: False}}
    assert found.testing.tester is not None
    assert [each.name for each in found.testing.tester.evaluator_tasks] == ["accuracy", "f1"]
