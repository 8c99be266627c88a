"""Evaluators that users bring: what they see, what they measure, and what a checkpoint keeps of them."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.stopping import StoppedEarly
from castoff.trainers.task.configured_task import ConfiguredTask
from castoff.trainers.task.custom_evaluator import CustomEvaluator
from castoff.trainers.task.portable import NotPortable, portable, restored
from tests.trainers.task.test_evaluators import Numbers, Scaled, fields, squares, trained
from tests.trainers.toys import lasting_lines, run


class Judge:
    """Keeps a table with a row for each evaluation, and draws a number of its own in each."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.data = pandas.DataFrame(columns=["loss", "other_loss", "drawn"])
        self.reported: list[Any] = []

    def validate(self, model: nn.Module, data_loader: Iterable[Any]) -> None:
        numbers = [batch[0] for batch in data_loader]
        error = torch.cat([model((each,)) - 2 * each for each in numbers]).abs().mean().item()
        self.data.loc[len(self.data)] = [error, error * self.scale, torch.rand(()).item()]

    test = validate

    def report(self, data: Any) -> None:
        self.reported.append(data)


def twice(outputs: Tensor, batch: Any, trainer: Any) -> Tensor:
    """Needs the trainer, and gives the mean in a tensor with one dimension."""
    assert trainer.epoch >= 0
    loss: Tensor = ((outputs - 2 * batch[1]) ** 2).mean(dim=0)
    return loss


def own(path: Path | str, kind: Any = Judge, tester: Any = None, **sections: Any) -> dict[str, Any]:
    """A configuration with an evaluator of the user's own, of a network that learns."""
    validator = kind if isinstance(kind, dict) else {"type": kind, "args": [], "kwargs": {}}
    given = fields(path, validation={"batch_size": 2, "validator": validator}, **sections)
    if tester is not None:
        given["testing"] = {"batch_size": 2, "tester": {"type": tester}}
    given["criterion"] = twice
    given["training"] |= {"optimizer_kwargs": {"lr": 0.001}, "num_epochs": 4, "batch_size": 2}
    return given


WATCHED = {"kwargs": {"patience": 9, "tasks": {0: {"metric": "other_loss", "mode": "min"}}}}


# --- What they see and measure ------------------------------------------------------------------------


def test_its_last_row_is_what_is_measured_and_watched(tmp_path: Path) -> None:
    judge = {"type": PyObject(f"{__name__}.Judge"), "args": [3.0]}
    given = own(tmp_path, judge, tester=Judge, early_stopping=WATCHED)
    trainer = TrainerDDP(0, given)
    training, validation, test = trainer.prepare_dataloaders()
    _, metrics = trainer.run_training(training, validation)
    task = trainer.task
    assert isinstance(task, ConfiguredTask)
    assert isinstance(task.whole_set_evaluator, CustomEvaluator)
    made = task.whole_set_evaluator.evaluator
    assert made.data.to_dict("records") == metrics and len(metrics) == 4
    assert metrics[0]["other_loss"] == pytest.approx(3 * metrics[0]["loss"])
    assert made.reported == [None] * 4, "what validate has returned"
    tested = trainer.run_test(test)
    assert set(tested) == {"loss", "other_loss", "drawn"}
    lines = [line for line in lasting_lines(trainer.folder) if "val/other_loss" in line]
    assert [line["val/other_loss"] for line in lines] == [each["other_loss"] for each in metrics]


class Seen:
    """Returns what it was given, and the ranks that called it."""

    def validate(self, model: nn.Module, data_loader: Any) -> dict[str, Any]:
        assert not model.training and not torch.is_grad_enabled()
        batches = [batch[0].flatten().tolist() for batch in data_loader]
        assert len(batches) == len(data_loader)
        assert sum(map(len, batches)) == len(data_loader.dataset)
        return {"loss": float(RankEnv.detect().rank), "seen": list(chain(*batches))}


def judged_on(given: dict[str, Any]) -> tuple[list[dict[str, float]], float, list[Any]]:
    """What was measured, the weight, and the evaluator's rows on this rank."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, given)
    training, validation, _ = trainer.prepare_dataloaders()
    try:
        trainer.run_training(training, validation)
    finally:
        cleanup_ddp()
    assert isinstance(trainer.task, ConfiguredTask)
    assert isinstance(trainer.task.whole_set_evaluator, CustomEvaluator)
    data = getattr(trainer.task.whole_set_evaluator.evaluator, "data", None)
    rows = [] if data is None or me.rank else data.to_dict("records")
    return trainer.val_data, float(next(trainer.model.parameters()).detach()), rows


@pytest.mark.usefixtures("for_real")
def test_rank_0_judges_the_whole_set_for_all(tmp_path: Path) -> None:
    """In its own order, also where some ranks would have no batch of it."""
    answers = run(judged_on, own(tmp_path / "out", Seen), folder=tmp_path / "ranks", world_size=3)
    assert answers[0] == answers[1] == answers[2]
    several, _, _ = answers[0]
    alone, _, _ = judged_on(own(tmp_path / "alone", Seen))
    assert several == alone and alone[0]["loss"] == 0.0 and len(alone[0]) == 6


class Breaks(Judge):
    def validate(self, model: nn.Module, data_loader: Iterable[Any]) -> None:
        if len(self.data):
            raise RuntimeError("the second validation broke")
        super().validate(model, data_loader)


def error_of(given: dict[str, Any]) -> str:
    with pytest.raises(RuntimeError) as error:
        judged_on(given)
    return str(error.value)


@pytest.mark.usefixtures("for_real")
def test_one_that_breaks_ends_all_ranks(tmp_path: Path) -> None:
    answers = run(error_of, own(tmp_path / "out", Breaks), folder=tmp_path / "ranks", world_size=2)
    assert set(answers) == {"the second validation broke"}


# --- What they may give -------------------------------------------------------------------------------


class Gives:
    """Returns what it was made with, and keeps what it was to keep."""

    def __init__(self, given: Any = None, kept: Any = None) -> None:
        self.given = given
        if kept is not None:
            self.data = kept

    def validate(self, model: nn.Module, data_loader: Any) -> Any:
        return self.given


def measured(given: Any = None, kept: Any = None) -> dict[str, float]:
    stated = Config.of(own("x", {"type": lambda: Gives(given, kept)}))
    task = ConfiguredTask(stated)
    assert task.whole_set_evaluator is not None
    return dict(task.whole_set_evaluator(Scaled(), []))


@pytest.mark.parametrize(
    ("given", "kept", "metrics"),
    [
        (0.5, None, {"loss": 0.5}),
        (torch.tensor([0.5]), None, {"loss": 0.5}),
        ({"loss": numpy.float32(0.5), "f1": [0.0, 1.0]}, None, {"loss": 0.5, "f1/0": 0.0, "f1/1": 1.0}),
        (pandas.DataFrame({"loss": [1.0, 0.5], "note": ["a", "b"]}), None, {"loss": 0.5}),
        (0.1, [{"loss": 2.0}, {"loss": 0.5}], {"loss": 0.5}),
        (0.1, [(2.0, 0.1), (0.5, 0.2)], {"loss": 0.5, "loss_std": 0.2}),
        (0.1, {"loss": [2.0, 0.5], "f1": [0.0, 1.0]}, {"loss": 0.5, "f1": 1.0}),
        (0.5, [], {"loss": 0.5}),
        ({"loss_avg": 0.5}, None, {"loss_avg": 0.5, "loss": 0.5}),
        ({"loss_avg": 0.5, "loss": 1.0}, None, {"loss_avg": 0.5, "loss": 1.0}),
    ],
)
def test_numbers_by_name(given: Any, kept: Any, metrics: dict[str, float]) -> None:
    assert measured(given, kept) == metrics


@pytest.mark.parametrize(
    ("given", "kept"), [(None, None), ("0.5", None), (None, [object()]), ({"loss": "low"}, None)]
)
def test_the_error_about_no_measures_names_where_to_put_them(given: Any, kept: Any) -> None:
    with pytest.raises(ConfigError, match=r"validation\.validator: Gives\.validate returned .*self\.data"):
        measured(given, kept)


def test_without_a_loss_and_anything_to_watch_the_newest_is_the_best(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(own(tmp_path, {"type": Gives, "kwargs": {"given": {"f1": 0.5}}}))
    assert [each.message for each in caplog.records].count(
        "Validation measures no loss (but f1), so the newest model counts as the best; name the metric to "
        "watch in early_stopping.kwargs.tasks"
    ) == 1
    newest = max(each.name for each in (tmp_path / "toy" / "checkpoints").glob("step-*"))
    assert (tmp_path / "toy" / "checkpoints" / "best").resolve().name == newest


@pytest.mark.parametrize(
    ("validator", "says"),
    [
        ({"type": Numbers}, "validation.validator.type: Numbers has no validate(model, data_loader); define"),
        ({"type": Judge, "args": [1.0, 2.0]}, "validation.validator.kwargs: "),
        (
            {"type": Judge, "kwargs": {"scal": 1}},
            "kwargs.scal: Judge takes no such argument; did you",
        ),
        (
            {"type": Judge, "criterion": squares},
            "validator.criterion: the class Judge evaluates by itself",
        ),
        (
            {"kwargs": {"scale": 1}},
            "validation.validator.kwargs: is for a custom class",
        ),
        ({"type": PyObject("os.no_such")}, "!pyobject os.no_such: os has no no_such"),
    ],
)
def test_evaluators_that_make_no_sense(validator: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        ConfiguredTask(Config.of(own("x", validator)))
    assert says in str(error.value)


# --- Resuming -----------------------------------------------------------------------------------------


class StopsAt(Judge):
    """Asks for a stop in its second validation, as a signal does."""

    def validate(self, model: nn.Module, data_loader: Iterable[Any]) -> None:
        super().validate(model, data_loader)
        if len(self.data) == 2:
            raise StoppedEarly("as if the machine went down")


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world", [1, 2])
def test_a_run_that_resumes_has_the_same_rows(world: int, tmp_path: Path) -> None:
    """Bit for bit, what is drawn among them: after a whole validation, and after one that was broken off."""

    def on_ranks(given: dict[str, Any], name: str) -> list[Any]:
        return run(judged_on, given, folder=tmp_path / name, world_size=world)

    whole = on_ranks(own(tmp_path / "a", early_stopping=WATCHED), "whole")
    first = own(tmp_path / "b", early_stopping=WATCHED)
    first["training"]["num_epochs"] = 2
    on_ranks(first, "first")
    assert on_ranks(own(tmp_path / "b", early_stopping=WATCHED), "second") == whole
    metrics, weight, rows = whole[0]
    assert rows == metrics and len(rows) == 4 and weight > 1.0


def test_one_that_was_broken_off_is_done_again(tmp_path: Path) -> None:
    whole = judged_on(own(tmp_path / "a"))
    with pytest.raises(StoppedEarly):
        judged_on(own(tmp_path / "b", StopsAt))
    assert judged_on(own(tmp_path / "b")) == whole


class Counts(Gives):
    """Has a state of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def validate(self, model: nn.Module, data_loader: Any) -> float:
        self.times += 1
        return self.times

    def to_state_dict(self) -> dict[str, Any]:
        return {"times": self.times}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.times = state["times"]


def test_a_state_of_its_own_is_kept(tmp_path: Path) -> None:
    given = own(tmp_path, Counts)
    given["training"]["num_epochs"] = 1
    trained(given)
    metrics, _ = trained(own(tmp_path, Counts))
    assert [each["loss"] for each in metrics] == [1.0, 2.0, 3.0, 4.0]


def test_what_no_checkpoint_can_keep_is_named(tmp_path: Path) -> None:
    given = own(tmp_path, {"type": Gives, "kwargs": {"given": 1.0, "kept": [{"loss": 1.0, "at": Path()}]}})
    with pytest.raises(ConfigError) as error:
        trained(given)
    said = "validation.validator: the state of Gives contains a PosixPath (state['data'][0]['at']), but"
    assert said in str(error.value)


@pytest.mark.parametrize(
    "value",
    [
        pandas.DataFrame({"a": [1.5, math.nan], "b": ["x", "y"], "c": [1, 2]}, index=[3, 7]),
        pandas.DataFrame({"loss": pandas.Series([0.1, 0.2], dtype=object), 0: [True, False]}),
        pandas.DataFrame(columns=["loss", "other_loss"]),
        pandas.DataFrame({"a": [1.0]}).astype("float32"),
    ],
)
def test_tables_come_back_as_they_were(value: Any) -> None:
    kept = portable({"data": value})
    file = io.BytesIO()
    torch.save(kept, file)
    file.seek(0)
    back = restored(torch.load(file, weights_only=True))["data"]
    pandas.testing.assert_frame_equal(back, value, check_index_type=False, check_column_type=False)


def test_arrays_and_numbers_come_back_as_they_were() -> None:
    array = numpy.arange(6, dtype=numpy.int16).reshape(2, 3)
    value: dict[Any, Any] = {"a": array, "b": numpy.float32(0.1), 3: (1, "x", None)}
    back = restored(portable(value))
    assert numpy.array_equal(back["a"], array) and back["a"].dtype == numpy.int16
    assert back["b"] == value["b"] and type(back["b"]) is numpy.float32
    assert back[3] == value[3]
    one: Tensor = restored(portable([torch.ones(2)]))[0]
    assert torch.equal(one, torch.ones(2))


@pytest.mark.parametrize("value", [object(), numpy.array(["x"], dtype=object), {(1, 2): 3}])
def test_others_do_not(value: Any) -> None:
    with pytest.raises(NotPortable):
        portable([value])
