"""What a task gives: each mistake is reported in words that name the task's own method."""

from __future__ import annotations

import io
import random
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.randomness import seed_all
from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.task import Loss, Splits, Task, contract
from castoff.trainers.task.configured_task import ConfiguredTask, samples_in, task_of
from tests.cases import others_long
from tests.trainers.toys import Toy
from tests.trainers.toys import config as toy_config

TASK = Toy()
DATA = TensorDataset(torch.zeros(4, 2))
WEIGHT = torch.ones(2, requires_grad=True)
TOTAL = (WEIGHT * 3).sum()


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


class Unfinished(Task):
    def build_model(self) -> nn.Module:
        return nn.Linear(2, 1)


def refused(call: Callable[..., Any], *given: Any) -> str:
    with pytest.raises(ConfigError) as error:
        call(*given)
    (problem,) = error.value.problems
    return problem


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "Toy.build_model returned None; return a torch.nn.Module"),
        (nn.Linear, "returned the class Linear; return an object of it, Linear(…)"),
        (nn.DataParallel(nn.Linear(1, 1)), "returned a DataParallel; return the model itself"),
        ([nn.Linear(1, 1)], "returned a list of 1; return a torch.nn.Module"),
    ],
)
def test_build_model(given: Any, says: str) -> None:
    assert says in refused(contract.validate_model, TASK, given)


def test_a_model_without_shapes() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    says = "returned a tensor that has no shape yet for 0.weight; call the model once on an example"
    assert says in refused(contract.validate_model, TASK, model)
    model(torch.ones(2, 3))
    assert contract.validate_model(TASK, model) is model
    assert "for running_mean" in refused(contract.validate_model, TASK, nn.LazyBatchNorm1d(affine=False))


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_gradients_that_are_sparse(kind: Any) -> None:
    model = nn.ModuleDict({"words": kind(5, 3, sparse=True), "others": kind(5, 3)})
    says = refused(contract.validate_model, TASK, model)
    assert f"returned an {kind.__name__} with sparse=True for words; drop sparse, because" in says
    assert "for the model; drop" in refused(contract.validate_model, TASK, model["words"])
    model["words"].requires_grad_(False)
    assert contract.validate_model(TASK, model) is model


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            DATA,
            "Toy.build_data returned a TensorDataset; return Splits(train, validation, test), e.g. Splits(",
        ),
        ((DATA, DATA), "returned a tuple of 2; return Splits"),
        (None, "returned None; return Splits"),
        (Splits(DataLoader(DATA), [], []), "returned a DataLoader for train; return the data set"),
        (Splits(DATA, None, []), "returned None for validation; leave it out of Splits"),
        (Splits(None, [], []), "returned None for train; return a data set: with __getitem__ and __len__"),
        (
            Splits(DATA, DATA, 3),
            "returned 3 for test; return a data set: with __getitem__",
        ),
    ],
)
def test_build_data(given: Any, says: str) -> None:
    assert says in refused(contract.validate_data, TASK, given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            None,
            "Toy.loss returned None; return Loss(total), the sum over the batch's samples as a tensor",
        ),
        (None, "is a return missing?"),
        (TOTAL, "returned a tensor, 6.0 of torch.float32; return Loss(total)"),
        (0.5, "returned 0.5; return Loss(total)"),
        (Loss(6.0, 1), "returned 6.0 for total; return Loss(total)"),  # type: ignore[arg-type]
        (Loss(WEIGHT * 3, 2), "returned a tensor of shape (2,) for total; sum it: total.sum()"),
        (Loss(TOTAL.detach(), 2), "returned a tensor that needs no gradient for total; make it of the"),
        (
            Loss(torch.tensor(3), 2),
            "returned a tensor, 3 of torch.int64 for total; return a floating-point number",
        ),
        (Loss(TOTAL, -1), "returned -1 for count; return a whole number of at least 0, or None"),
        (Loss(TOTAL, 2.0), "returned 2.0 for count"),  # type: ignore[arg-type]
        (Loss(TOTAL, True), "returned True for count"),
        (Loss(TOTAL, torch.tensor([1, 2])), "returned a tensor of shape (2,) for count"),
        (Loss(TOTAL, torch.tensor(-1)), "returned a tensor, -1 of torch.int64 for count"),
        (Loss(TOTAL, torch.tensor(float("nan"))), "for count"),
        (Loss(TOTAL, 2, [TOTAL]), "returned a list of 1 for metrics; return sums by name"),  # type: ignore[arg-type]
        (Loss(TOTAL, 2, {"right": WEIGHT}), "returned a tensor of shape (2,) for metrics['right']"),
        (Loss(TOTAL, 2, {"right": "3"}), "returned '3' for metrics['right']"),  # type: ignore[dict-item]
        (Loss(TOTAL, 2, {"loss": 3.0}), "returned 3.0 for metrics['loss']; use another name"),
    ],
)
def test_loss(given: Any, says: str) -> None:
    assert says in refused(contract.validate_first_loss, TASK, given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, 'Toy.evaluate returned None; return {"loss": (sum, count)}, a pair for each metric'),
        ({"loss": 0.3}, 'returned 0.3 for loss; return {"loss": (sum, count)}'),
        ({"loss": torch.ones(2)}, "returned a tensor of shape (2,) for loss; return"),
        ({"loss": (1.0, 2, 3)}, "returned a tuple of 3 for loss; return"),
        ({"loss": (WEIGHT, 2)}, "returned a tensor of shape (2,) for loss's sum; return a sum: one number"),
        ({"loss": (1.0, 2.5)}, "returned 2.5 for loss's count"),
        ({3: (1.0, 2)}, "returned 3 for the name; name metrics by text"),
    ],
)
def test_evaluate(given: Any, says: str) -> None:
    assert says in refused(contract.validate_first_sums, TASK, given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "Toy.finish returned None; return numbers by name"),
        ({"f1": None}, "Toy.finish returned None for f1; return one number"),
        ({"f1": WEIGHT}, "returned a tensor of shape (2,) for f1; return one number"),
        ({1: 2.0}, "returned 1 for the name"),
    ],
)
def test_finish(given: Any, says: str) -> None:
    assert says in refused(contract.metrics, TASK, "finish", given)


MODEL = nn.Linear(2, 1)


def test_what_is_right_is_given_back() -> None:
    splits = Splits(Stream(), [], DATA)
    assert contract.validate_data(TASK, splits) is splits
    assert contract.validate_model(TASK, MODEL) is MODEL
    counts = [None, 0, 3, torch.tensor(3), torch.tensor(2.5)]
    for loss in [Loss(TOTAL, count, {"right": 3, "wrong": torch.tensor(1)}) for count in counts]:
        assert contract.validate_first_loss(TASK, loss) is loss is contract.validate_loss(TASK, loss)
    sums = {"loss": (TOTAL, None), "right": (numpy.float64(3), 4), "wrong": (1, torch.tensor(2))}
    assert contract.validate_first_sums(TASK, sums) is sums
    assert contract.metrics(TASK, "finish", {"f1": torch.tensor(0.5)}) == {"f1": 0.5}


Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    "kept",
    [
        {},
        OrderedDict(a=1),
        {"a": [torch.ones(2), (1, 2.5, None, True, "x", b"x", 1j)], "b": {1: nn.Parameter(torch.ones(1))}},
        {"a": {1, 2}, "b": torch.Size([2]), "c": torch.float32, "d": torch.device("cpu")},
        {"a": numpy.ones(2)},
        {"a": numpy.float64(1)},
        {"a": Pair(1, 2)},
        {"a": [torch.Generator()]},
        {"a": TASK},
        {"a": lambda: 0},
        {Pair(1, 2): 1},
    ],
)
def test_a_state_is_refused_where_torch_would_not_read_it_again(kept: dict[Any, Any]) -> None:
    buffer = io.BytesIO()
    try:
        torch.save(kept, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
    except Exception:  # noqa: BLE001  # whatever it is: it cannot be read
        assert "Toy.state_dict returned" in refused(contract.state, TASK, kept)
    else:
        assert contract.state(TASK, kept) == kept


def test_a_state_that_is_refused_is_named() -> None:
    said = refused(contract.state, TASK, {"cache": [1, {"x": numpy.ones(2)}]})
    assert said.startswith("Toy.state_dict returned a ndarray for ['cache'][1]['x']; a checkpoint can hold")
    assert "returned None; return a dict" in refused(contract.state, TASK, None)


def test_a_task_that_is_none() -> None:
    assert "task: is the class Toy; pass an object, Toy(…)" in refused(contract.validate_task, Toy)
    assert "which is not a Task; write class Linear(trainers.Task)" in refused(contract.validate_task, MODEL)
    assert contract.validate_task(TASK) is TASK
    given = Config.of(
        {**toy_config("x"), "task": nn.Linear, "task_kwargs": {"in_features": 1, "out_features": 1}}
    )
    assert "task: is a Linear, which is not a Task" in refused(task_of, given)
    assert task_of(given, TASK) is TASK


@dataclass
class Model:
    width: int
    depth: int = 1


@pytest.mark.parametrize(
    ("make", "arguments", "problems"),
    [
        (
            Unfinished,
            {},
            ["task: Unfinished cannot be created: it does not define the abstract"],
        ),
        (Toy, {"sampels": 3}, ["task_kwargs.sampels: Toy takes no such argument; did you mean samples?"]),
        (
            Model,
            {"with": 3, "colour": 1},
            [
                "task_kwargs.with: Model takes no such argument; did you mean width?",
                "task_kwargs.colour: Model takes no such argument; there are: width, depth",
                "task_kwargs.width: is missing; Model needs it",
            ],
        ),
        (lambda x, /: x, {"x": 1}, ["task_kwargs.x: "]),
        (min, {"x": 1}, ["task_kwargs: min "]),  # whose arguments cannot be known before it is called
    ],
)
def test_arguments_that_are_wrong(make: Any, arguments: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        contract.construct(make, arguments, "task_kwargs", "task")
    assert len(error.value.problems) == len(problems)
    for said, begins in zip(error.value.problems, problems, strict=True):
        assert said.startswith(begins)


def test_errors_inside_user_code_keep_their_type() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        contract.construct(lambda width: width + "", {"width": 3}, "model")


# --- The task that a configuration describes ----------------------------------------------------------


def make_data(size: int = 20) -> TensorDataset:
    return TensorDataset(torch.ones(size, 2))


def described(**fields: Any) -> ConfiguredTask:
    given = {
        **toy_config("x"),
        "model": {"type": nn.Linear, "in_features": 2, "out_features": 1},
        "data": {"dataset": TensorDataset},
        "criterion": lambda outputs, batch: outputs.mean(),
    }
    return ConfiguredTask(Config.of({**given, **fields}))


def test_arguments_of_the_model_and_the_data_are_named() -> None:
    model = {"type": PyObject("torch.nn.Linear"), "in_feature": 2, "out_features": 1}
    with pytest.raises(ConfigError) as error:
        described(model=model).build_model()
    assert error.value.problems == [
        "model.in_feature: Linear takes no such argument; did you mean in_features?",
        "model.in_features: is missing; Linear needs it",
    ]
    data = {"dataset": make_data, "sise": 3}
    assert "data.sise: make_data takes no such" in refused(described(data=data).build_data)


@pytest.mark.parametrize(
    ("gives", "says"),
    [
        (None, "criterion: returned None; name a function(outputs, batch) that returns the mean loss"),
        (0.5, "criterion: returned 0.5"),
        (torch.ones(3), "criterion: returned a tensor of shape (3,)"),
        (nn.MSELoss(), "criterion: returned a MSELoss"),
    ],
)
def test_what_a_criterion_gives(gives: Any, says: str) -> None:
    task = described(criterion=lambda outputs, batch: gives)
    assert says in refused(task.loss, task.build_model(), torch.ones(4, 2))


def test_a_criterions_mean_is_weighted_by_the_samples() -> None:
    task = described()
    loss = task.loss(nn.Identity(), torch.full((4, 2), 3.0))
    assert float(loss.total) == 12


@dataclass
class Sample:
    name: str
    x: torch.Tensor


class Graphs:
    num_graphs = 7


X = torch.ones(5, 3)


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (X, 5),
        ([X, X], 5),
        ((["a", "b"], X), 5),
        ({"name": ["a"] * 5, "t": torch.tensor(3.0), "inner": {"x": X}}, 5),
        (Pair([X], None), 5),
        (Sample("a", X), 5),
        (Graphs(), 7),
        ([Graphs(), X], 7),
        (pack_sequence([torch.ones(4), torch.ones(2)]), 2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_samples_of_odd_batches(batch: Any, samples: int) -> None:
    assert samples_in(batch) == samples


@pytest.mark.parametrize("batch", [None, "text", {}, [], [["a", "b"]], torch.tensor(3.0), 3])
def test_samples_that_cannot_be_seen(batch: Any) -> None:
    assert "criterion: the number of samples in a batch is unknown" in refused(samples_in, batch)


@pytest.mark.parametrize("names", [(), ("torch",), ["random", "numpy"]])
def test_a_task_declares_its_generators(names: Any, tmp_path: Path) -> None:
    task = Toy()
    task.rng_sources = names
    state = TrainerDDP(0, toy_config(tmp_path), task).state
    drawn = []
    for seed in (1, 2):
        seed_all(seed)
        state.begin_step()
        drawn.append([float(torch.rand(())), random.random(), numpy.random.random()])
    same = [
        name
        for name, first, second in zip(("torch", "random", "numpy"), *drawn, strict=True)
        if first == second
    ]
    assert set(same) == set(names)


class DrawsFrom(Toy):
    """Draws from one generator, and says that it draws from others."""

    def __init__(self, name: str, declared: Any):
        super().__init__(dropout=0.0)
        self.name = name
        self.rng_sources = declared

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        draws: dict[str, Callable[[], Any]] = {"random": random.random, "numpy": numpy.random.random}
        draws.get(self.name, lambda: torch.rand(()))()
        return super().loss(model, batch)


@pytest.mark.parametrize("name", others_long(["torch", "random", "numpy"], ["numpy"]))
def test_a_task_that_draws_from_undeclared_generators(name: str, tmp_path: Path) -> None:
    fields = toy_config(tmp_path, num_steps=1, num_epochs=None)
    trainer = TrainerDDP(0, fields, DrawsFrom(name, [name]))
    trainer.run_training(trainer.prepare_dataloaders()[0], None)
    others = tuple({"torch", "random", "numpy"} - {name})
    trainer = TrainerDDP(0, {**fields, "name": "again"}, DrawsFrom(name, others))
    with pytest.raises(
        ConfigError, match=rf"DrawsFrom\.rng_sources is \(.*, but a training step .* {name}; add"
    ):
        trainer.run_training(trainer.prepare_dataloaders()[0], None)


class DrawsAfterwards(Toy):
    """Draws nothing in `loss` and `evaluate`, as it says; the generators stand anywhere after them."""

    rng_sources = ()

    def __init__(self, elsewhere: int):
        super().__init__(samples=20, dropout=0.0)
        self.elsewhere = elsewhere

    def state_dict(self) -> dict[str, Any]:
        seed_all(self.elsewhere)
        return {}

    def after_evaluation(self, model: nn.Module) -> dict[str, float]:
        return {"drawn": float(torch.rand(())) + random.random() + numpy.random.random()}


def test_a_tasks_declared_generators_do_not_cover_its_samples(tmp_path: Path) -> None:
    drawn = set()
    for number in (1, 2):
        fields = toy_config(tmp_path / str(number), num_epochs=1)
        trainer = TrainerDDP(0, fields, DrawsAfterwards(number))
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
        lines = MetricsFile(trainer.folder / "metrics.jsonl").read()
        drawn |= {line["val/drawn"] for line in lines if "val/drawn" in line}
    assert len(drawn) == 1


@pytest.mark.parametrize("wrong", ["torch", ["torhc"], True, [["torch"]]])
def test_generators_that_a_task_has_not(wrong: Any, tmp_path: Path) -> None:
    task = Toy()
    task.rng_sources = wrong
    with pytest.raises(ConfigError, match=r"task: Toy\.rng_sources is .*; it takes some of"):
        TrainerDDP(0, toy_config(tmp_path), task)
