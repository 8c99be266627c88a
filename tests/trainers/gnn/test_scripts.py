"""QuantumGrav's way to write a script: a trainer, and loaders from a factory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LinearLR, ReduceLROnPlateau

import castoff.trainers.gnn as QG
from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from tests.trainers.gnn.graphs.written import ZARR_3
from tests.trainers.gnn.graphs_in_memory import Graphs, compute_loss, described
from tests.trainers.gnn.test_quantumgrav import public, stores
from tests.trainers.toys import digest, run


def from_factory(given: dict[str, Any], rank: int = 0) -> QG.TrainerDDP:
    """A training to its end, with loaders that are made apart from the trainer."""
    trainer = QG.TrainerDDP(rank=rank, config=given)
    factory = QG.DistributedDataLoaderFactory(config=given, rank=rank)
    train_loader, val_loader, test_loader = factory.prepare_dataloaders()
    trainer.run_training(train_loader=train_loader, val_loader=val_loader)
    if rank == 0:
        trainer.run_test(test_loader)
    return trainer


def both_ways(given: dict[str, Any], other: str) -> list[tuple[str, list[dict[str, float]]]]:
    """The weights and metrics of a training with loaders of a factory, and of one with the trainer's own."""
    me = RankEnv.detect()
    if me.world_size > 1:
        QG.initialize_ddp(me.rank, me.world_size, backend="gloo")
        with pytest.raises(ConfigError, match="Trainer: is for one process, not for 2; use TrainerDDP"):
            QG.Trainer.from_config(given)
    one = from_factory(given, me.rank)
    two = QG.TrainerDDP.from_config({**given, "training": {**given["training"], "path": other}})
    training, validation, _ = two.prepare_dataloaders()
    two.run_training(training, validation)
    QG.cleanup_ddp()
    return [(digest(each.model), each.val_data) for each in (one, two)]


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world", [1, 2])
def test_loaders_of_a_factory_are_the_trainers_own(world: int, tmp_path: Path) -> None:
    given = described(tmp_path / "one")
    answers = run(both_ways, given, str(tmp_path / "two"), folder=tmp_path / "ranks", world_size=world)
    for one, two in answers:
        assert one == two == answers[0][0]


@pytest.mark.skipif(not ZARR_3, reason="zarr 2 does not open a group that is open")
def test_a_run_knows_the_graphs_of_a_factory(tmp_path: Path) -> None:
    """As it knows its own, so it does not resume with others."""
    stores(tmp_path)
    given = public(tmp_path, 1)
    given["training"]["num_epochs"] = 1
    from_factory(given)
    stores(tmp_path, seed=1)
    given["training"]["num_epochs"] = 2
    with pytest.raises(ConfigError, match=r"data\.files: give 15 graphs, which are not the 15 graphs that"):
        from_factory(given)


def test_data_sets_may_be_given(tmp_path: Path) -> None:
    given = described(tmp_path)
    factory = QG.DataLoaderFactory.from_config(given)
    train, validation, test = factory.prepare_dataset(Graphs(20), [0.5, 0.25, 0.25])
    assert (len(train), len(validation), len(test)) == (10, 5, 5)
    loaders = factory.prepare_dataloaders(train_dataset=train, val_dataset=validation, test_dataset=test)
    assert [len(each.dataset) for each in loaders] == [10, 5, 5]
    QG.TrainerDDP(0, given).run_training(*loaders[:2])
    with pytest.raises(ConfigError, match="prepare_dataset: takes train_dataset, val_dataset and"):
        factory.prepare_dataloaders(dataset=Graphs(20), train_dataset=train)


def test_a_sampler_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    sampler = torch.utils.data.WeightedRandomSampler([1.0, 2.0], 2)
    with pytest.raises(ConfigError, match=r"training_sampler: is a WeightedRandomSampler, but .* weight the"):
        QG.DataLoaderFactory(described(tmp_path)).prepare_dataloaders(training_sampler=sampler)


def test_a_trainer_for_one_process_gives_tables(tmp_path: Path) -> None:
    given = described(tmp_path)
    tasks = [{"name": "f1", "monitor": "F1"}]
    given["validation"] = {"validator": {"device": "cpu", "evaluator_tasks": tasks}}
    given["early_stopping"] = {"kwargs": {"tasks": {0: {"metric": "f1", "mode": "max"}}}}
    trainer = QG.Trainer.from_config(given)
    assert trainer.initialize_model() is trainer.model
    assert trainer.initialize_optimizer() is trainer.optimizer
    train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
    trained, validated = trainer.run_training(train_loader=train_loader, val_loader=val_loader)
    tested = trainer.run_test(test_loader)
    assert list(trained["loss"]) == [each["loss"] for each in trainer.train_data]
    assert list(validated.columns) == ["loss_avg", "loss_min", "loss_max", "f1"]
    assert list(validated["loss_avg"]) == [each["loss"] for each in trainer.val_data]
    assert list(tested.columns) == ["loss_avg", "loss_min", "loss_max"] and len(tested) == 1


def test_its_evaluators_may_be_the_users_own(tmp_path: Path) -> None:
    arguments = {"device": "cpu", "criterion": compute_loss}
    given = described(tmp_path, num_epochs=1)
    given["validation"] = {"validator": {"type": QG.DefaultValidator, "kwargs": arguments}}
    given["testing"] = {
        "tester": {"type": PyObject("castoff.trainers.gnn.DefaultTester"), "kwargs": arguments}
    }
    trainer = QG.Trainer(0, given)
    train_loader, val_loader, test_loader = trainer.prepare_dataloaders()
    _, validated = trainer.run_training(train_loader, val_loader)
    assert validated == trainer.validator.data and len(validated) == 1
    assert len(trainer.run_test(test_loader)) == 1


@pytest.mark.parametrize(("kind", "per"), [(LinearLR, "epoch"), (ReduceLROnPlateau, None)])
def test_a_scheduler_counts_epochs(kind: Any, per: str | None, tmp_path: Path) -> None:
    given = described(tmp_path, lr_scheduler_type=kind)
    assert QG.TrainerDDP(0, given).config.training.lr_scheduler_per == per


def test_by_how_much_the_loss_is_to_fall() -> None:
    asked = QG.DefaultEarlyStopping(patience=1, min_delta=0.1)
    assert not asked({"loss": 1.0}) and asked.found_better_model
    assert asked({"loss": 0.95}) and not asked.found_better_model


def test_defaults_of_generated_sets_leave_the_users_own_evaluators_alone(tmp_path: Path) -> None:
    """Where sets are generated: tables have the metrics that are built in, and another judges by itself."""
    given = described(tmp_path, num_epochs=1)
    for name in ("model", "criterion"):
        del given[name]
    given["data"] = {"causets": {"number": 30, "size": [8, 10]}, "output": str(tmp_path / "graphs")}
    trainer = QG.Trainer.from_config(given)
    _, table = trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert {"loss_avg", "accuracy", "f1", "dimension_error"} <= set(table.columns)
    given["training"]["path"] = str(tmp_path / "own")
    own = {"type": QG.Validator, "kwargs": {"device": "cpu", "criterion": "manifold_and_dimension"}}
    other = QG.TrainerDDP(0, {**given, "validation": {"validator": own}})
    _, metrics = other.run_training(*other.prepare_dataloaders()[:2])
    assert set(metrics[0]) == {"loss", "loss_avg", "loss_min", "loss_max"}
