"""Scripts and configurations for QuantumGrav: what they name and call, with only the import changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.utils import dense_to_sparse
from zarr import open_group

import castoff.trainers.gnn as QG
from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from tests.trainers.gnn.graphs.written import ZARR_3
from tests.trainers.gnn.graphs_in_memory import ENCODER, HEAD, Graphs, compute_loss, described
from tests.trainers.toys import run

SETS, LARGEST = 5, 12
"""In each of three stores; elements of the largest set."""


def stores(folder: Path, seed: int = 0) -> list[str]:
    """Stores as QuantumGrav has them: an array for each quantity, filled up with zeros to the largest set."""
    draw = torch.Generator().manual_seed(seed)
    paths = []
    for number in range(3):
        path = folder / f"sets_{number}.zarr"
        group = open_group(str(path), mode="w")
        links = torch.zeros(SETS, LARGEST, LARGEST)
        dimensions = torch.randint(2, 5, (SETS,), generator=draw)
        for each in range(SETS):
            size = 8 + each
            links[each, :size, :size] = torch.rand(size, size, generator=draw).round().triu(1)
        for name, values in {
            "link_matrix": links,
            "past": links.sum(1),
            "future": links.sum(2),
            "dimension": dimensions.float(),
        }.items():
            make = group.create_array if ZARR_3 else group.create_dataset
            make(name, shape=tuple(values.shape), dtype="float32")[...] = values.numpy()
        paths.append(str(path))
    return paths


def read_data(store: Any, idx: int, float_dtype: Any, int_dtype: Any, validate: bool) -> Any:
    """A reader with QuantumGrav's five arguments."""
    group: Any = open_group(store, mode="r")
    edges, weights = dense_to_sparse(torch.tensor(group["link_matrix"][idx]))
    x = torch.tensor(numpy.stack([group["past"][idx], group["future"][idx]]), dtype=float_dtype).t()
    y = torch.tensor([[int(group["dimension"][idx])]], dtype=int_dtype)
    return torch_geometric.data.Data(x=x, edge_index=edges, edge_attr=weights.unsqueeze(1), y=y)


class DrawnLosses:
    """An evaluator that derives from nothing: it draws its losses, keeps a table and returns nothing."""

    def __init__(self) -> None:
        self.data = pandas.DataFrame(columns=["loss", "other_loss"])

    def validate(self, model: nn.Module, data_loader: Iterable[Any]) -> None:
        number = len(self.data)
        self.data.loc[number, "loss"] = torch.rand(10).mean().item()
        self.data.loc[number, "other_loss"] = torch.rand(10).mean().item()

    test = validate

    def report(self, losses: Any) -> None:
        assert losses is None
        print("reported:", self.data.tail(1).to_dict("records"))


def three(outputs: dict[int, Tensor], data: Any, trainer: Any) -> Tensor:
    """A criterion that needs the trainer, and gives a loss of shape (1,)."""
    assert trainer.device.type == "cpu" and trainer.epoch < 13
    losses = torch.zeros(1)
    for output in outputs.values():
        losses += nn.functional.mse_loss(output, data.y.to(torch.float32))
    return losses


def head() -> list[Any]:
    layers = [[(64, 24), (24, 1)], [nn.ReLU, nn.Identity]]
    return [QG.models.LinearSequential, layers, {"linear_kwargs": [{"bias": True}, {"bias": False}]}]


def public(folder: Path, ranks: int) -> dict[str, Any]:
    """A configuration with every key that QuantumGrav's tests give its TrainerDDP."""
    block = {
        "dropout": 0.3,
        "gnn_layer_type": torch_geometric.nn.conv.GCNConv,
        "gnn_layer_args": [],
        "gnn_layer_kwargs": {"cached": False, "bias": True, "add_self_loops": True},
        "normalizer_type": nn.BatchNorm1d,
        "norm_args": [32],
        "norm_kwargs": {"eps": 1e-5, "momentum": 0.2},
        "activation_type": nn.ReLU,
        "skip_args": [2, 32],
        "skip_kwargs": {"weight_initializer": "kaiming_uniform"},
    }
    loader = {"batch_size": 1, "num_workers": 0, "pin_memory": False, "drop_last": False, "shuffle": True}
    custom = {"type": DrawnLosses, "args": [], "kwargs": {}}
    task = {"delta": 1e-2, "grace_period": 3, "init_best_score": 1e6}
    return {
        "training": {
            "seed": 42,
            "device": "cpu",
            "checkpoint_at": 20,
            "path": str(folder / "trained"),
            "optimizer_type": torch.optim.Adam,
            "optimizer_args": [],
            "optimizer_kwargs": {"lr": 0.001, "weight_decay": 0.0},
            "batch_size": 4,
            "num_workers": 0,
            "pin_memory": True,
            "drop_last": True,
            "num_epochs": 13,
        },
        "data": {
            "pre_transform": lambda data: data,
            "transform": lambda data: data,
            "pre_filter": lambda data: True,
            "reader": read_data,
            "files": [str(folder / f"sets_{number}.zarr") for number in range(3)],
            "output": str(folder / "graphs"),
            "validate_data": True,
            "n_processes": 1,
            "chunksize": 10,
            "shuffle": False,
            "split": [0.8, 0.1, 0.1],
        },
        "model": {
            "encoder_type": QG.models.GNNBlock,
            "encoder_args": [2, 32],
            "encoder_kwargs": block,
            "pooling_layers": [
                [torch_geometric.nn.global_mean_pool, [], {}],
                [torch_geometric.nn.global_max_pool, [], {}],
            ],
            "aggregate_pooling_type": partial(torch.cat, dim=1),
            "downstream_tasks": [head(), head()],
            "active_tasks": {0: True, 1: True},
        },
        "criterion": three,
        "validation": {**loader, "validator": custom},
        "testing": {**loader, "shuffle": False, "tester": custom},
        "early_stopping": {
            "type": QG.early_stopping.DefaultEarlyStopping,
            "args": [
                {
                    0: {**task, "metric": "loss", "mode": "min"},
                    1: {**task, "metric": "other_loss", "mode": "max", "init_best_score": -1e6},
                },
                4,
            ],
            "kwargs": {"mode": "any"},
        },
        "parallel": {
            "world_size": ranks,
            "master_addr": "localhost",
            "master_port": "23456",
            "backend": "gloo",
        },
    }


def by_parts(folder: Path) -> tuple[list[dict[str, float]], list[dict[str, float]], dict[str, float]]:
    """Trains what it describes on this rank: what was trained, validated and tested."""
    me = RankEnv.detect()
    config = public(folder, me.world_size)
    if me.world_size > 1:
        QG.initialize_ddp(me.rank, me.world_size, "localhost", "23456", "gloo")
    trainer = QG.TrainerDDP(me.rank, config)
    train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
    trained, validated = trainer.run_training(train_loader, val_loader)
    QG.cleanup_ddp()
    return trained, validated, trainer.run_test(test_loader)


def seen(answer: tuple[list[Any], list[Any], dict[str, float]]) -> None:
    """Early stopping has watched what the evaluator gave, both metrics of it."""
    trained, validated, tested = answer
    assert 4 < len(validated) <= 13 and len(trained) == len(validated)
    assert all(set(each) == {"loss", "other_loss"} for each in [*validated, tested])
    assert len({each["loss"] for each in validated}) == len(validated), "each is drawn anew"


@pytest.mark.skipif(not ZARR_3, reason="zarr 2 does not open a group that is open")
def test_its_public_configuration_trains_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores(tmp_path)
    answer = by_parts(tmp_path)
    seen(answer)
    assert capsys.readouterr().out.count("reported:") == len(answer[1]) + 1


@pytest.mark.usefixtures("for_real")
def test_and_on_two_ranks(tmp_path: Path) -> None:
    stores(tmp_path)
    first, second = run(by_parts, tmp_path, folder=tmp_path / "ranks", world_size=2)
    assert first == second
    seen(first)


# --- Evaluators to derive from --------------------------------------------------------------------------


def validated_by(path: Path, validator: Any, **sections: Any) -> tuple[Any, list[dict[str, float]]]:
    """The evaluator after a training, and what was measured."""
    given = described(path, num_epochs=2, optimizer_kwargs={"lr": 0.05})
    trainer = QG.TrainerDDP(0, {**given, "validation": {"validator": validator}, **sections})
    training, validation, test = trainer.prepare_dataloaders()
    _, metrics = trainer.run_training(training, validation)
    trainer.run_test(test)
    assert trainer.config["training"]["num_epochs"] == 2
    return trainer.validator, metrics


def size(predictions: list[Any], targets: list[Tensor]) -> float:
    return float(sum(map(len, targets)))


MEASURES: list[dict[str, Any]] = [
    {"name": "f1", "monitor": "F1", "kwargs": {"average": "none"}},
    {"name": "size", "monitor": size},
]
WATCHED = {"tasks": {0: {"metric": "loss_avg", "delta": 1e-4, "mode": "min"}}, "mode": "any", "patience": 5}
"""Early stopping as QuantumGrav's guide has it: no type, and the mean by its name."""


def test_a_validator_measures_as_the_one_that_ranks_share(tmp_path: Path) -> None:
    arguments = {"device": "cpu", "criterion": compute_loss, "evaluator_tasks": MEASURES}
    given = {"type": PyObject("castoff.trainers.gnn.Validator"), "kwargs": arguments}
    mine, metrics = validated_by(tmp_path / "mine", given, early_stopping=WATCHED)
    _, shared = validated_by(tmp_path / "shared", {"evaluator_tasks": MEASURES}, early_stopping=WATCHED)
    for one, other in zip(metrics, shared, strict=True):
        assert one["loss_avg"] == one["loss"] == pytest.approx(other["loss"], rel=1e-6)
        assert {name: one[name] for name in other if name != "loss"} == {
            name: value for name, value in other.items() if name != "loss"
        }
        assert one["loss_min"] <= one["loss"] <= one["loss_max"]
    assert list(mine.data["size"]) == [4.0, 4.0]


class Reporting(QG.Validator):
    """Derived: reports otherwise, and measures one thing more."""

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.reports: list[int] = []

    def evaluate(self, model: nn.Module, data_loader: Any) -> Any:
        data = super().evaluate(model, data_loader)
        data.loc[len(data) - 1, "twice"] = 2 * data["loss_avg"].iloc[-1]
        return data

    def report(self, data: pandas.DataFrame) -> None:
        self.reports.append(len(data))


def test_one_that_is_derived(tmp_path: Path) -> None:
    given = {"type": Reporting, "args": ["cpu", compute_loss, []], "kwargs": {"apply_model": None}}
    mine, metrics = validated_by(tmp_path, given)
    assert mine.reports == [1, 2]
    assert [each["twice"] for each in metrics] == [2 * each["loss"] for each in metrics]


def test_the_older_kind_keeps_means_and_deviations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"type": QG.DefaultValidator, "args": ["cpu", compute_loss]}
    with caplog.at_level(logging.INFO):
        mine, metrics = validated_by(tmp_path, given)
    assert mine.data == [(each["loss"], each["loss_std"]) for each in metrics]
    assert "DefaultValidator: loss" in caplog.text


def test_they_test_alike() -> None:
    graphs = [torch_geometric.data.Batch.from_data_list([Graphs()[index] for index in range(6)])]
    model = QG.GNNModel.from_config({**ENCODER, "downstream_tasks": [HEAD]})
    tester = QG.Tester.from_config({"device": "cpu", "criterion": compute_loss, "evaluator_tasks": MEASURES})
    table = tester.test(model, graphs)
    (loss,) = QG.DefaultTester("cpu", compute_loss).test(model, graphs)
    assert table["loss_avg"].iloc[-1] == pytest.approx(float(loss))
    tester.report(table)
    again = QG.Tester("cpu", compute_loss)
    again.load_state_dict(tester.state_dict())
    assert again.data is table


def test_tasks_that_make_no_sense_are_named() -> None:
    with pytest.raises(ConfigError, match=r"evaluator_tasks\.0\.monitor: is missing"):
        QG.Validator("cpu", compute_loss, [{"name": "f1"}])
    with pytest.raises(ConfigError, match=r"evaluator_tasks\.0\.monitor: is 'F2', but no monitor"):
        QG.Validator("cpu", compute_loss, [{"name": "f2", "monitor": "F2"}])


def test_early_stopping_beside_its_type_or_in_kwargs_not_both(tmp_path: Path) -> None:
    given = {**WATCHED, "kwargs": {"patience": 3}}
    with pytest.raises(ConfigError, match=r"early_stopping\.patience: is given, and so is early_st"):
        QG.TrainerDDP(0, {**described(tmp_path), "early_stopping": given})


def test_modules_have_the_names_that_scripts_import() -> None:
    from castoff.trainers.gnn.train_ddp import TrainerDDP, cleanup_ddp, initialize_ddp

    names = (QG.TrainerDDP, QG.cleanup_ddp, QG.initialize_ddp)
    assert names == (TrainerDDP, cleanup_ddp, initialize_ddp)
    early = PyObject("castoff.trainers.gnn.early_stopping.DefaultEarlyStopping").resolve()
    assert early is QG.DefaultEarlyStopping is QG.early_stopping.DefaultEarlyStopping
    assert PyObject("castoff.trainers.gnn.evaluate.Tester").resolve() is QG.Tester
