"""The YAML of `castoff train dpo`, what it becomes, and what is said of its mistakes."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.dpo import settings
from castoff.trainers.dpo.start.configuration import OBJECTIVES, Common, read
from castoff.trainers.dpo.start.flags import with_flags

PAIRS = {"data": {"train_data": "pairs.json"}, "base_model": {"dir": "base"}, "training": {"path": "out"}}
CHAINS = {"objective": "likelihood", "data": {"structures": "pdb"}, "training": {"path": "out"}}


def problems(fields: Any, *overrides: str, flags: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(fields, flags, overrides)
    return list(map(with_flags, caught.value.problems))


def test_required_fields_are_enough() -> None:
    """The defaults are those of the tool that this one follows."""
    config = read(PAIRS)
    training = config.training
    assert config.task == PyObject("castoff.trainers.dpo.task.DpoTask")
    assert (training.num_epochs, training.batch_size, training.scaling.learning_rate) == (10, 1, "none")
    assert (training.optimizer_type, training.optimizer_kwargs) == (
        PyObject("torch.optim.Adam"),
        {"lr": 3e-7},
    )
    assert training.schedule is None and config.name == "dpo"


@pytest.mark.parametrize(("fields", "kind"), [(PAIRS, settings.Dpo), (CHAINS, settings.Likelihood)])
def test_the_task_is_given_its_sections_as_plain_data(fields: Any, kind: type[msgspec.Struct]) -> None:
    given = read(fields, {"data.max_length": 99}).task_kwargs
    assert list(given) == list(kind.__struct_fields__)
    assert given["data"]["max_length"] == 99
    assert msgspec.convert(given, kind)
    assert "Struct" not in str({type(each).__mro__ for part in given.values() for each in part.values()})


def test_a_likelihood_has_another_task_and_other_defaults() -> None:
    config = read(CHAINS)
    training = config.training
    assert config.task == PyObject("castoff.trainers.dpo.likelihood.LikelihoodTask")
    assert (training.num_epochs, training.batch_size, training.clip_grad_norm) == (100, 8, 1.0)
    assert training.optimizer_kwargs == {"lr": 1e-3}
    assert training.schedule is not None and training.schedule.type == "cosine"


def test_a_configuration_names_each_objective() -> None:
    assert get_args(Common.__annotations__["objective"]) == (*OBJECTIVES,)


def test_given_fields_override_defaults_one_by_one() -> None:
    given = {"num_steps": 7, "optimizer_kwargs": {"weight_decay": 0.1}, "schedule": {"type": "linear"}}
    training = read({**CHAINS, "training": {"path": "out", **given}}).training
    assert (training.num_steps, training.num_epochs) == (7, None)
    assert training.optimizer_kwargs == {"lr": 1e-3, "weight_decay": 0.1}
    assert training.schedule is not None and training.schedule.type == "linear"


def test_modules_that_are_sharded_on_their_own() -> None:
    """The network's layers would need their parameters outside of their forward passes."""
    parallel = read({**CHAINS, "parallel": {"strategy": "fsdp", "fsdp": {"within": "node"}}}).parallel
    assert parallel.fsdp is not None
    assert (parallel.fsdp.modules, parallel.fsdp.within) == (["FeedForward"], "node")
    assert read(CHAINS).parallel.fsdp is None


def test_a_scheduler_of_torchs_takes_the_place_of_the_schedule() -> None:
    given = {"path": "out", "lr_scheduler_type": PyObject("torch.optim.lr_scheduler.ConstantLR")}
    assert read({**CHAINS, "training": given}).training.schedule is None


def test_file_flags_and_overrides_in_turn() -> None:
    fields = {**PAIRS, "preference": {"beta": 1.0, "temperature": 1.0, "loss": "ipo"}}
    flags = {"preference.beta": 2.0, "preference.temperature": 2.0}
    given = read(fields, flags, ["preference.temperature=3"]).task_kwargs["preference"]
    assert (given["loss"], given["beta"], given["temperature"]) == ("ipo", 2.0, 3.0)
    assert fields["preference"] == {"beta": 1.0, "temperature": 1.0, "loss": "ipo"}


@pytest.mark.parametrize("flagged", [True, False])
def test_a_rate_by_hand_is_literal(flagged: bool) -> None:
    """Whatever rule the file has; unless that is set by hand, too."""
    training = {"path": "out", "scaling": {"learning_rate": "linear", "base_world_size": 1}}
    fields = {**PAIRS, "training": training}
    path = "training.optimizer_kwargs.lr"
    flags, overrides = ({path: 1e-6}, []) if flagged else ({}, [f"{path}=1e-6"])
    assert read(fields).training.scaling.learning_rate == "linear"
    assert read(fields, flags, overrides).training.scaling.learning_rate == "none"
    overrides.append("training.scaling.learning_rate=sqrt")
    assert read(fields, flags, overrides).training.scaling.learning_rate == "sqrt"


@pytest.mark.parametrize("fields", [None, {}, {"objective": "dpo"}])
def test_all_that_is_missing_is_reported_at_once(fields: Any) -> None:
    """With the flags that say it."""
    assert problems(fields) == [
        "training.path (--output_dir): is missing; it takes text",
        "data.train_data (--train_data): is missing; it takes text",
        "base_model.dir (--base_model_dir): is missing; it takes text",
    ]
    assert problems({"objective": "likelihood"}) == [
        "training.path (--output_dir): is missing; it takes text",
        "data.structures (--structures): is missing; it takes text",
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"preference.beta": 0}, "preference.beta (--beta): is 0, but takes a number above 0"),
        ({"preference.temperature": 0}, "preference.temperature (--temperature): is 0, but takes a number"),
        ({"preference.temperature": -0.1}, "preference.temperature (--temperature): is -0.1, but takes"),
        ({"preference.beta": float("nan")}, "preference.beta (--beta): is nan, but takes a number above 0"),
        ({"preference.beta": float("inf")}, "preference.beta (--beta): is inf, but takes a number above 0"),
        ({"preference.label_smoothing": 0.5}, "(--label_smoothing): is 0.5, but takes a number of at"),
        ({"training.optimizer_kwargs.lr": -1}, "lr (--learning_rate): is -1, but takes a number"),
        ({"training.optimizer_kwargs.lr": float("nan")}, "lr (--learning_rate): is nan, but takes"),
        ({"training.optimizer_kwargs.lr": float("inf")}, "lr (--learning_rate): is inf, but takes"),
        ({"training.optimizer_kwargs.weight_decay": -0.5}, "(--weight_decay): is -0.5, but takes"),
        ({"training.batch_size": 0}, "(--batch_size): is 0, but takes a whole number"),
        ({"training.num_epochs": -1}, "training.num_epochs (--num_epochs): is -1, but takes a whole number"),
        ({"data.max_length": 0}, "data.max_length (--max_length): is 0, but takes"),
        ({"data.mutable_positions": [3, -1]}, "positions.1 (--mutable_positions): is -1, but takes a whole"),
        ({"data.mutable_ranges": [[1, 2], [9, 2]]}, "(--mutable_ranges): has [9, 2], whose end is before"),
        ({"data.mutable_ranges": [[1, 2, 3]]}, "ranges.0 (--mutable_ranges): is [1, 2, 3], but takes a list"),
        ({"data.mutable_ranges": "1-2"}, "(--mutable_ranges): is '1-2', but takes a list"),
        ({"preference.diversity_lambda": -1}, "(--diversity_lambda): is -1, but takes"),
    ],
)  # fmt: skip
def test_values_that_cannot_be(flags: dict[str, Any], said: str) -> None:
    (found,) = problems(PAIRS, flags=flags)
    assert said in found


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "holds no sections (training, data …)"),
        ({**PAIRS, "objective": "likelyhood"}, "but takes dpo, likelihood; did you mean likelihood?"),
        ({**PAIRS, "objective": ["dpo"]}, "objective (--objective): is ['dpo'], but takes dpo, likelihood"),
        ({**PAIRS, "preference": {"betta": 1}}, "preference.betta: there is no such field; did you"),
        ({**PAIRS, "beta": 1}, "beta: there is no such field; did you mean preference.beta?"),
        ({**PAIRS, "data": None}, "data: is empty, but takes fields"),
        ({**PAIRS, "task": "mine"}, "task: there is no such field"),
        ({**PAIRS, "model": {"dropout": 0.1}}, "model.dropout: is for objective: likelihood, but this"),
        ({**CHAINS, "preference": {"beta": 1}}, "preference.beta (--beta): is for objective: dpo, but this"),
        ({**PAIRS, "training": {"path": "o", "num_steps": 3, "num_epochs": 2}}, "only one of them can end"),
        ({**PAIRS, "training": "out"}, "training: is 'out', but takes fields"),
        ({**PAIRS, "training": {"path": "o", "optimizer_kwargs": {"lr": "fast"}}}, "is 'fast', but takes"),
    ],
)  # fmt: skip
def test_mistakes_in_the_file(fields: Any, said: str) -> None:
    (found,) = problems(fields)
    assert said in found


def test_flags_of_another_objective_are_reported_all_at_once() -> None:
    flags = {
        "preference.beta": 0.1,
        "preference.loss": "ipo",
        "data.train_data": "p.json",
        "base_model.dir": "b",
    }
    found = problems(CHAINS, flags=flags)
    assert [each.partition(": ")[0] for each in found] == [
        "data.train_data (--train_data)",
        "preference.beta (--beta)",
        "preference.loss (--loss)",
        "base_model.dir (--base_model_dir)",
    ]


def test_problems_of_all_kinds_together() -> None:
    found = problems({"data": {"train_data": [3]}, "x": 1}, "y", flags={"preference.beta": 0})
    assert len(found) == 6, found
