"""Searches by Optuna: what a trial suggests, and how it ends a training that is not worth continuing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import optuna
import pytest
from torch import nn

from castoff.trainers.checkpointing.run_folder import run_name
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.yaml_text import read_yaml
from castoff.trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from castoff.trainers.evaluation.tuning import suggested
from castoff.trainers.task import Loss
from tests.trainers import toys
from tests.trainers.toys import Toy

SEARCH = """
training:
  batch_size: !sweep {values: [8, 16, 32]}
  rate: !random_uniform {start: 1e-5, stop: 1e-1, log: true}
model:
  layers:
    - width: !range {start: 4, stop: 11, step: 2}
      dropout: !range {start: 0.1, stop: 0.5, step: 0.1}
    - width: !reference {target: "model.layers[0].width"}
  type: !sweep
    values: [{kind: !pyobject torch.nn.Linear}, {kind: !pyobject torch.nn.GRU}]
steps: !coupled-sweep {target: training.batch_size, values: [4, 2, 1]}
"""


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


class TestSuggestions:
    def test_each_sweep_is_a_parameter_of_its_kind(self) -> None:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        fields = read_yaml(SEARCH)
        for _ in range(20):
            trial = study.ask()
            found = suggested(fields, trial)
            size = found["training"]["batch_size"]
            first, second = found["model"]["layers"]
            assert found["steps"] * size == 32
            assert first["width"] == second["width"] and first["width"] in (4, 6, 8, 10)
            assert first["dropout"] in (0.1, 0.2, 0.3, 0.4, 0.5)
            assert found["model"]["type"]["kind"] in (PyObject("torch.nn.Linear"), PyObject("torch.nn.GRU"))
            values = found["member"]["values"]
            assert found["member"] == {"number": trial.number, "of": None, "values": values}
            study.tell(trial, found["training"]["rate"])
        assert {name: type(kind).__name__ for name, kind in trial.distributions.items()} == {
            "training.batch_size": "CategoricalDistribution",
            "training.rate": "FloatDistribution",
            "model.layers.0.width": "IntDistribution",
            "model.layers.0.dropout": "FloatDistribution",
            "model.type": "CategoricalDistribution",
        }
        rate = trial.distributions["training.rate"]
        assert isinstance(rate, optuna.distributions.FloatDistribution) and rate.log
        # The best one again, from what the study has kept.
        best = suggested(fields, study.best_trial)
        assert best["training"]["rate"] == study.best_value == study.best_params["training.rate"]

    def test_values_that_python_takes_for_the_same_are_distinguished(self) -> None:
        fields = read_yaml("a: !sweep {values: [1, true]}\nb: !coupled-sweep {target: a, values: [x, y]}")
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        found = {
            (type(given["a"]), given["b"]) for given in (suggested(fields, study.ask()) for _ in range(20))
        }
        assert found == {(int, "x"), (bool, "y")}

    def test_every_trial_has_a_folder(self) -> None:
        study, fields = optuna.create_study(), toys.config("out")
        names = [run_name(Config.of(suggested(fields, study.ask())), {}) for _ in range(2)]
        assert names == ["toy_0", "toy_1"]

    def test_mistakes_are_reported(self) -> None:
        with pytest.raises(ConfigError, match="is coupled to b, but there is no such field"):
            suggested(read_yaml("a: !coupled-sweep {target: b, values: [1]}"), optuna.create_study().ask())
        with pytest.raises(ConfigError, match="leads to b, but there is no b"):
            suggested(read_yaml("a: !reference {target: b}"), optuna.create_study().ask())


class Hopeless(Toy):
    """Learns nothing where its learning rate is 0, and counts."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        loss = super().loss(model, batch)
        return Loss(loss.total, metrics={"right": -loss.total.detach()})


def trained(trainer: TrainerDDP, trial: Any) -> float:
    """A training to its end; what it is worth."""
    training, validation, _ = trainer.prepare_dataloaders()
    _, validated = trainer.run_training(training, validation, trial)
    return validated[-1]["loss"]


def config(folder: Path, number: int, **training: Any) -> dict[str, Any]:
    return toys.config(folder, run=f"trial-{number}", num_epochs=4, batch_size=40, **training)


def rate_of(trial: optuna.Trial) -> float:
    return trial.suggest_float("rate", 0.0, 1.0)


RATES = [0.05, 0.05, 0.0]
"""The third trial learns nothing."""


def study_of() -> optuna.Study:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=2)
    study = optuna.create_study(pruner=pruner)
    for rate in RATES:
        study.enqueue_trial({"rate": rate})
    return study


class TestPruning:
    def test_a_hopeless_trial_ends_early_and_whole(self, tmp_path: Path) -> None:
        study, trainers = study_of(), list[TrainerDDP]()

        def objective(trial: optuna.Trial) -> float:
            fields = config(tmp_path, trial.number, optimizer_kwargs={"lr": rate_of(trial)})
            trainers.append(TrainerDDP(0, fields, Toy(dropout=0.0)))
            return trained(trainers[-1], trial)

        study.optimize(objective, n_trials=3)
        assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE", "PRUNED"]
        assert [len(trial.intermediate_values) for trial in study.trials] == [4, 4, 2]
        for trainer, trial in zip(trainers, study.trials, strict=True):
            given = [each["loss"] for each in trainer.val_data]
            assert trial.intermediate_values == dict(enumerate(given, 1))
        pruned = trainers[2]
        newest = pruned.checkpoints.newest()
        assert newest is not None and newest.name == f"step-{pruned.step:010d}"
        # Without the trial it resumes from there, to the end.
        again = TrainerDDP(0, config(tmp_path, 2, optimizer_kwargs={"lr": 0.0}), Toy(dropout=0.0))
        trained(again, None)
        assert (again.epoch, len(again.val_data)) == (4, 4)

    def test_a_resumed_training_reports_nothing_twice(self, tmp_path: Path) -> None:
        """Optuna would warn, and a warning is an error here."""
        study = study_of()
        trial = study.ask()
        trained(TrainerDDP(0, config(tmp_path, 0), Toy()), trial)
        for path in sorted((tmp_path / "trial-0" / "checkpoints").glob("step-*"))[-1:]:
            (path / "record.json").unlink()  # it was killed before it had kept that
        again = optuna.Trial(study, trial._trial_id)
        trained(TrainerDDP(0, config(tmp_path, 0), Toy()), again)
        assert list(study.trials[0].intermediate_values) == [1, 2, 3, 4]

    def test_steps_are_reported_where_validations_count_by_them(self, tmp_path: Path) -> None:
        study = optuna.create_study()
        fields = {**config(tmp_path, 0), "validation": {"every_steps": 3}}
        trial = study.ask()
        trained(TrainerDDP(0, fields, Toy()), trial)
        assert list(study.trials[0].intermediate_values) == [3, 6, 9, 12, 15, 18, 20]

    def test_what_early_stopping_watches_first_is_reported(self, tmp_path: Path) -> None:
        watched = {"tasks": {"a": {"metric": "right", "mode": "max"}, "b": {"metric": "loss"}}}
        fields = {**config(tmp_path, 0), "early_stopping": {"kwargs": watched}}
        study = optuna.create_study(direction="maximize")
        trainer = TrainerDDP(0, fields, Hopeless())
        trained(trainer, study.ask())
        given = list(study.trials[0].intermediate_values.values())
        assert given == [each["right"] for each in trainer.val_data]
        with pytest.raises(
            ConfigError, match=r"the study should minimize .* right should be as large as possible"
        ):
            trained(TrainerDDP(0, fields, Hopeless()), optuna.create_study().ask())

    def test_a_trial_without_a_study_will_do(self, tmp_path: Path) -> None:
        fields = toys.config(tmp_path, num_epochs=1, batch_size=40)
        assert trained(TrainerDDP(0, fields, Toy()), optuna.trial.FixedTrial({})) > 0


def searched(folder: Path) -> list[tuple[str, int, float]]:
    """On each rank: how its trials ended, at which step, with which weight."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    place = initialize_ddp(rank, size, device="cpu")
    study = study_of() if rank == 0 else None
    found = []
    for number in range(3):
        trial: Any = study.ask() if study is not None else None
        fields = config(folder, number, optimizer_kwargs={"lr": RATES[number]})
        fields["training"]["batch_size"] = 20
        trainer = TrainerDDP(rank, fields, Toy(dropout=0.0))
        try:
            value = trained(trainer, trial)
            ended = "COMPLETE"
        except optuna.TrialPruned:
            value, ended = None, "PRUNED"
        if study is not None:
            study.tell(trial, value, optuna.trial.TrialState[ended])
        found.append((ended, trainer.step, float(next(iter(trainer.model.parameters())).sum())))
    assert isinstance(suggested(read_yaml(SEARCH), study and study.ask(), place)["steps"], int)
    cleanup_ddp()
    return found


def test_two_ranks_end_a_hopeless_trial_together(tmp_path: Path) -> None:
    first, second = toys.run(searched, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert first == second
    assert [ended for ended, *_ in first] == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert first[2][1] == first[0][1] // 2


def wrong(folder: Path) -> str:
    """The error of a rank where the study looks the other way."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    initialize_ddp(rank, size, device="cpu")
    trial = optuna.create_study(direction="maximize").ask() if rank == 0 else None
    with pytest.raises(ConfigError) as error:
        trained(TrainerDDP(rank, config(folder, 0), Toy()), trial)
    cleanup_ddp()
    return str(error.value)


def test_every_rank_reports_a_study_that_looks_the_other_way(tmp_path: Path) -> None:
    given = toys.run(wrong, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert len(set(given)) == 1 and "the study should maximize" in given[0]
