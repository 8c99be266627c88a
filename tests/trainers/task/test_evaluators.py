"""What validates and tests a model that a configuration describes: criteria, and monitors of everything."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.data.loaders import evaluation_loader
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.stopping import StoppedEarly
from castoff.trainers.evaluation.metrics import evaluate
from castoff.trainers.files.durable import read_checksummed
from castoff.trainers.task import Evaluated
from castoff.trainers.task.configured_task import ConfiguredTask
from castoff.trainers.task.prediction_metrics import targets_in, to_keep
from tests.trainers.toys import Toy, config, run

CPU = torch.device("cpu")


class Numbers(torch.utils.data.Dataset[Any]):
    """0, 1, 2 … as (number, number)."""

    rng_sources = ()

    def __init__(self, length: int = 20):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return torch.tensor([float(index)]), torch.tensor([float(index)])


class Scaled(nn.Module):
    """A number times a weight, which begins with 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return batch[0] * self.weight


def squares(outputs: Tensor, batch: Any) -> Tensor:
    found: Tensor = ((outputs - batch[1]) ** 2).mean()
    return found


def ten(outputs: Tensor, batch: Any) -> Tensor:
    return outputs.mean() * 0 + 10


def doubled(model: nn.Module, batch: Any) -> Any:
    return 2 * model(batch)


def seen(predictions: list[Tensor], targets: list[Tensor]) -> list[float]:
    """All of them, in order."""
    assert torch.equal(torch.cat(predictions), torch.cat(targets))
    return torch.cat(predictions).squeeze(1).tolist()


class Quantile:
    """Of the predictions, as a class that is made with its arguments."""

    def __init__(self, at: float, scale: float = 1.0):
        self.at, self.scale = at, scale

    def __call__(self, predictions: list[Tensor], targets: list[Tensor]) -> float:
        return float(torch.cat(predictions).quantile(self.at)) * self.scale


def fields(path: Path | str, *monitors: Any, **sections: Any) -> dict[str, Any]:
    """A configuration that describes its task; `monitors` are (name, monitor) or whole sections."""
    given = [each if isinstance(each, dict) else {"name": each[0], "monitor": each[1]} for each in monitors]
    return {
        **config(path, optimizer_type=torch.optim.SGD, optimizer_kwargs={"lr": 0.0}, num_epochs=1),
        "model": {"type": Scaled},
        "criterion": squares,
        "data": {"dataset": Numbers, "split": [0.5, 0.25, 0.25]},
        "validation": {"validator": {"evaluator_tasks": given}},
        **sections,
    }


def judged(given: dict[str, Any], length: int, size: int, context: RankContext) -> dict[str, float]:
    """The metrics of numbers up to a length."""
    task = ConfiguredTask(Config.of(given))
    settings = task.config.training
    loader = evaluation_loader(
        *(Numbers(length), Config.of({**given, "validation": {"batch_size": size}}).validation, settings),
        *(task.collate,),
        rank=context.rank,
        world_size=context.world_size,
    )
    return evaluate(task, task.build_model(), loader, context)


def here(given: dict[str, Any], length: int = 5, size: int = 2) -> dict[str, float]:
    return judged(given, length, size, RankContext(0, 1, CPU))


# --- Everything, in order, once -----------------------------------------------------------------------


def on_ranks(most: int) -> list[dict[str, float]]:
    """Of sets with no more samples than ranks, and of larger ones."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    given = fields("x", ("seen", seen), ("drawn", drawn), ("rank", whose))
    found = [judged(given, length, 2, place) for length in range(1, most)]
    cleanup_ddp()
    return found


def drawn(predictions: list[Tensor], targets: list[Tensor]) -> Tensor:
    """What is random in a monitor is the same on any number of ranks."""
    return torch.rand(())


def whose(predictions: list[Tensor], targets: list[Tensor]) -> float:
    return float(os.environ.get("RANK", "0"))


@pytest.mark.parametrize("world", [2, 3, 4])
def test_monitors_see_all_samples_of_all_ranks_in_order(world: int, tmp_path: Path) -> None:
    """Each once, also where a rank has none; rank 0 computes, and all ranks have the numbers."""
    answers = run(on_ranks, 12, folder=tmp_path, world_size=world)
    alone = [here(fields("x", ("seen", seen), ("drawn", drawn)), length) for length in range(1, 12)]
    for answer in answers:
        for length, (metrics, wanted) in enumerate(zip(answer, alone, strict=True), 1):
            assert [metrics[f"seen/{number}"] for number in range(length)] == list(range(length))
            assert metrics == {**wanted, "rank": 0.0}


def test_without_monitors_nothing_is_kept() -> None:
    task = ConfiguredTask(Config.of(fields("x")))
    batch = task.collate([Numbers()[1]])
    assert not isinstance(task.evaluate(task.build_model(), batch), Evaluated)


def test_what_is_kept_takes_no_more_than_it_is() -> None:
    """Not the tensor that it is a part of; and in a type that numpy has."""
    large = torch.zeros(1000, 2, dtype=torch.bfloat16)
    kept = to_keep({0: large[:3, 0], "b": [large[0]], "c": (torch.ones(2), None)})
    assert kept[0].untyped_storage().nbytes() == 3 * 4 and kept[0].dtype == torch.float32
    assert kept["b"][0].tolist() == [0, 0] and kept["c"][1] is None


def test_targets_are_y_or_the_last_part() -> None:
    assert targets_in({"x": 1, "y": 2}) == 2
    assert targets_in((1, 2, 3)) == 3
    with pytest.raises(ConfigError, match=r"a batch that is a tensor of shape \(3,\); give the batch a y"):
        targets_in(torch.zeros(3))


class Middle(Toy):
    """A custom task with a median, which is not a mean."""

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return Evaluated({"loss": (len(batch[0]) * 1.0, None)}, batch[1][:, 0])

    def measure(self, kept: Sequence[Tensor]) -> Mapping[str, float]:
        return {"median": float(torch.cat(list(kept)).median())}


def test_a_task_of_ones_own_may_keep_things_too(tmp_path: Path) -> None:
    trainer = TrainerDDP(0, config(tmp_path, num_epochs=1), Middle())
    training, validation, test = trainer.prepare_dataloaders()
    _, metrics = trainer.run_training(training, validation)
    for found, part in ((metrics[0], validation), (trainer.run_test(test), test)):
        wanted = torch.stack([each[1][0] for each in part.dataset]).median()
        assert found == {"loss": 1.0, "median": pytest.approx(float(wanted))}


# --- What they give -----------------------------------------------------------------------------------


class Shy:
    def __float__(self) -> float:
        raise ValueError("not yet")


def gives(value: Any) -> Any:
    return lambda predictions, targets: value


@pytest.mark.parametrize(
    ("value", "metrics"),
    [
        (0.5, {"m": 0.5}),
        (True, {"m": 1.0}),
        (torch.tensor(0.5), {"m": 0.5}),
        (numpy.float32(0.5), {"m": 0.5}),
        (numpy.array([1, 2]), {"m/0": 1.0, "m/1": 2.0}),
        (torch.tensor([1.0, 2.0]), {"m/0": 1.0, "m/1": 2.0}),
        ((1, 2.0), {"m/0": 1.0, "m/1": 2.0}),
        ({"a": 1, 2: torch.tensor([3.0])}, {"m/a": 1.0, "m/2/0": 3.0}),
        ([], {}),
    ],
)
def test_a_number_or_several(value: Any, metrics: dict[str, float]) -> None:
    found = here(fields("x", ("m", gives(value))))
    assert found.pop("loss") == 0.0
    assert found == metrics


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "(m): its monitor returned None; return a number"),
        ("0.5", "(m): its monitor returned '0.5'; return"),
        ({"a": [1, "b"]}, "(m): its monitor returned 'b' for m/a/1; return"),
        (numpy.array([1j]), "(m): its monitor returned a complex for m/0"),
        (object(), "(m): its monitor returned an object; return a number, or several in a list"),
        (Shy(), "(m): its monitor returned a Shy: not yet; return a number"),
    ],
)
def test_a_measure_that_is_not_a_number_is_reported_with_its_name(value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        here(fields("x", ("fine", seen), ("m", gives(value))))
    assert f"validation.validator.evaluator_tasks.1 {says}" in str(error.value)


def emptied(predictions: list[Tensor], targets: list[Tensor]) -> float:
    predictions[0].zero_()
    return len(predictions)


def test_what_a_monitor_does_to_predictions_is_its_own_matter() -> None:
    assert here(fields("x", ("emptied", emptied), ("seen", seen)))["seen/1"] == 1.0


def test_no_measure_is_reported_in_the_place_of_another() -> None:
    with pytest.raises(ConfigError) as error:
        here(fields("x", ("a/b", gives(1.0)), ("a", gives({"b": 2.0}))))
    assert "1 (a): its monitor returned a/b, which another monitor has returned, too; use" in str(error.value)


def broken(predictions: list[Tensor], targets: list[Tensor]) -> float:
    return 1 / 0


def test_a_monitor_that_fails_is_reported_with_its_name_and_place() -> None:
    """All of them at once."""
    with pytest.raises(ConfigError) as error:
        here(fields("x", ("a", broken), ("b", gives(None))))
    first, second = error.value.problems
    assert first.startswith(
        "validation.validator.evaluator_tasks.0 (a): its monitor failed with ZeroDivisionError: division by "
        f"zero, at {__file__}:{broken.__code__.co_firstlineno + 1}"
    )
    assert " (b): " in second


def fails_on_ranks() -> str:
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    with pytest.raises(ConfigError) as error:
        judged(fields("x", ("a", broken)), 3, 1, place)
    cleanup_ddp()
    return str(error.value)


def test_every_rank_reports_a_monitor_that_fails(tmp_path: Path) -> None:
    first, second = run(fails_on_ranks, folder=tmp_path, world_size=2)
    assert first == second and "ZeroDivisionError" in first


def test_classes_are_made_with_their_arguments() -> None:
    given = [
        {"name": "median", "monitor": PyObject(f"{__name__}.Quantile"), "args": [0.5]},
        {"name": "tenfold", "monitor": Quantile, "args": [1.0], "kwargs": {"scale": 10.0}},
    ]
    metrics = here(fields("x", *given))
    assert (metrics["median"], metrics["tenfold"]) == (2.0, 40.0)


@pytest.mark.parametrize(
    ("monitor", "says"),
    [
        ({"name": "loss", "monitor": seen}, "0.name: is loss, which is the criterion's; use another name"),
        ({"name": "", "monitor": seen}, "0.name: is ''"),
        ({"name": "a", "monitor": "F1"}, "0.monitor: is 'F1'; write !pyobject my_package.my_measure"),
        ({"name": "a", "monitor": Quantile}, "0.kwargs.at: is missing; Quantile needs it"),
        ({"name": "a", "monitor": Quantile, "kwargs": {"at": 1, "of": 2}}, "kwargs.of: Quantile takes no"),
        ({"name": "a", "monitor": abs, "args": [-1]}, "0.monitor: is 1, which cannot be called; name a f"),
        ({"name": "a", "monitor": PyObject("os.no_such")}, "!pyobject os.no_such: os has no no_such"),
    ],
)
def test_monitors_that_make_no_sense(monitor: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        ConfiguredTask(Config.of(fields("x", monitor)))
    assert f"validation.validator.evaluator_tasks.{says}" in str(error.value) or says in str(error.value)


def test_no_two_have_one_name() -> None:
    with pytest.raises(ConfigError, match=r"evaluator_tasks\.1\.name: is a, which is another monitor's"):
        ConfiguredTask(Config.of(fields("x", ("a", seen), ("a", seen))))


# --- Criteria and models of their own ------------------------------------------------------------------


def test_a_criterion_that_is_a_class_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"criterion: is the class MSELoss, which does not return a loss; write a fun"
    ):
        ConfiguredTask(Config.of(fields(tmp_path, criterion=PyObject("torch.nn.MSELoss"))))


@pytest.mark.parametrize("shares", [[0.5, 0.5], "most", None, [0.8, 0.1, "0.1"]])
def test_a_split_into_other_than_three_shares_is_reported(shares: Any, tmp_path: Path) -> None:
    trainer = TrainerDDP(0, fields(tmp_path, data={"dataset": Numbers, "split": shares}))
    with pytest.raises(ConfigError, match=r"data\.split: is .*, but takes three shares, of training"):
        trainer.prepare_dataloaders()


def trained(given: dict[str, Any]) -> tuple[list[dict[str, float]], dict[str, float]]:
    trainer = TrainerDDP(0, given)
    training, validation, test = trainer.prepare_dataloaders()
    _, metrics = trainer.run_training(training, validation)
    return metrics, trainer.run_test(test)


def test_an_evaluator_falls_back_to_the_trainings_fields(tmp_path: Path) -> None:
    given = fields(tmp_path, testing={"tester": {"evaluator_tasks": [{"name": "s", "monitor": seen}]}})
    (validated,), tested = trained(given)
    assert validated == {"loss": 0.0}
    assert set(tested) == {"loss", *(f"s/{number}" for number in range(5))}


def test_validation_and_test_have_criteria_of_their_own(tmp_path: Path) -> None:
    given = fields(
        tmp_path,
        validation={"validator": {"criterion": ten}},
        testing={"tester": {"apply_model": doubled}},
    )
    (validated,), tested = trained(given)
    assert validated == {"loss": 10.0}
    assert tested["loss"] > 0, "twice the number is not the number"


def test_a_criterion_may_take_more() -> None:
    def several(outputs: Any, *others: Any) -> Any:
        return outputs.mean() * len(others)

    assert here(fields("x", criterion=several))["loss"] == 2.0


def test_a_criterion_that_gives_no_mean_is_named(tmp_path: Path) -> None:
    given = fields(tmp_path, validation={"validator": {"criterion": lambda outputs, batch: outputs}})
    with pytest.raises(ConfigError, match=r"validation\.validator\.criterion: returned a tensor of shape"):
        trained(given)


# --- What they may not ask for -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["DefaultValidator", "Validator"])
def test_the_default_may_be_named(name: str) -> None:
    ConfiguredTask(Config.of(fields("x", validation={"validator": {"type": name}})))


@pytest.mark.parametrize(
    ("field", "kind", "says"),
    [
        (
            "validation.validator",
            "Tester",
            "is 'Tester', but the only names are DefaultValidator and Vali",
        ),
        ("testing.tester", "a.b", "is 'a.b', but the only names are DefaultTester and Tester"),
    ],
)
def test_another_evaluator_is_refused_with_the_way_out(field: str, kind: str, says: str) -> None:
    given = Config.of(fields("x"), [f"{field}.type={kind}"])
    with pytest.raises(ConfigError) as error:
        ConfiguredTask(given)
    assert f"{field}.type: {says}" in str(error.value) and "evaluator_tasks" in str(error.value)


@pytest.mark.parametrize("trains", ["cpu", "auto"])
def test_each_rank_judges_where_it_trains(trains: str, tmp_path: Path) -> None:
    given = fields(
        tmp_path, validation={"validator": {"device": "cuda"}}, testing={"tester": {"device": "xpu"}}
    )
    given["training"]["device"] = trains
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, given)
    first, second = error.value.problems
    assert first.startswith("validation.validator.device: is cuda, but training.device is cpu, and each rank")
    assert second.startswith("testing.tester.device: is xpu")
    given = fields(
        tmp_path, validation={"validator": {"device": "cpu"}}, testing={"tester": {"device": "auto"}}
    )
    TrainerDDP(0, given)


@pytest.mark.parametrize("given", [True, False])
def test_beside_a_task_of_ones_own_they_are_an_error(given: bool, tmp_path: Path) -> None:
    stated = {**config(tmp_path), "testing": {"tester": {}}, "validation": {"validator": {"device": "cpu"}}}
    if not given:
        stated["task"] = Toy
    with pytest.raises(ConfigError) as error:
        TrainerDDP(0, stated, Toy() if given else None)
    first, second = error.value.problems
    assert first.startswith("validation.validator: is for a task described by model and criterion, but Toy")
    assert second.startswith("testing.tester: ")


# --- In a training -------------------------------------------------------------------------------------


def test_early_stopping_watches_a_monitor(tmp_path: Path) -> None:
    given = fields(tmp_path, ("middle", lambda p, t: 1.0))
    given["training"]["num_epochs"] = 9
    watched = {"m": {"metric": "middle", "mode": "max"}}
    given["early_stopping"] = {"kwargs": {"patience": 2, "tasks": watched}}
    validated, _ = trained(given)
    assert [each["middle"] for each in validated] == [1.0] * 3


def test_what_nobody_measures_is_reported_with_what_is(tmp_path: Path) -> None:
    given = fields(tmp_path, ("f1_macro", lambda p, t: 1.0))
    given["early_stopping"] = {"kwargs": {"tasks": {0: {"metric": "losses"}}}}
    with pytest.raises(
        ConfigError, match=r"is 'losses', which .*; did you mean loss\?; .*\(loss, f1_macro\)"
    ):
        trained(given)


def test_a_resumed_run_knows_their_measures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And may have others from there on, of which the log tells. The record has them, too, also NaN."""
    trained(fields(tmp_path, ("a", lambda p, t: math.nan)))
    (record,) = (tmp_path / "toy" / "checkpoints").glob("step-*/record.json")
    assert math.isnan(read_checksummed(record)["record"]["metrics"]["a"])
    again = fields(tmp_path, ("b", lambda p, t: 2.0))
    again["training"]["num_epochs"] = 2
    with caplog.at_level("INFO"):
        validated, _ = trained(again)
    assert [set(each) for each in validated] == [{"loss", "a"}, {"loss", "b"}]
    assert "validation.validator.evaluator_tasks: was " in caplog.text


class StopsInside:
    """A criterion that asks for a stop in the second batch of the first validation."""

    calls = 0

    def __call__(self, outputs: Tensor, batch: Any) -> Tensor:
        type(self).calls += 1
        if type(self).calls == 2:
            signal.raise_signal(signal.SIGUSR2)
        return squares(outputs, batch)


def test_a_stop_inside_a_validation_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a single prediction: the next attempt validates anew, and sees each once."""
    monkeypatch.setattr("castoff.trainers.distributed.stopping._MESSAGE_EVERY", 0.0)
    given = fields(tmp_path / "out", ("seen", seen))
    given["validation"] |= {"batch_size": 1}
    given["validation"]["validator"]["criterion"] = StopsInside()
    StopsInside.calls = 0
    with pytest.raises(StoppedEarly):
        trained(given)
    assert 2 <= StopsInside.calls < 5
    (validated,), _ = trained(given)
    assert len(validated) == 1 + 5
