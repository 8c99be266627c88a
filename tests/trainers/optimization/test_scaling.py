"""What the configuration's values come to on more ranks than they are meant for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.yaml_text import read_yaml, to_yaml
from castoff.trainers.optimization.scaling import Resolved, resolved
from tests.trainers.toys import config


def made(rules: dict[str, Any], overrides: list[str] | None = None, **training: Any) -> Config:
    return Config.of(config("x", scaling=rules, **training), overrides or [])


@pytest.mark.parametrize(
    ("rule", "ranks", "factor"),
    [
        *(("none", 8, 1.0), ("linear", 8, 4.0), ("sqrt", 8, 2.0), ("capped", 8, 3.0), ("capped", 4, 2.0)),
        *(("linear", 1, 0.5), ("linear", 2, 1.0), ("capped", 1, 0.5)),
    ],
)
def test_each_rule_for_the_rate_and_for_the_warmup(rule: str, ranks: int, factor: float) -> None:
    rules = {"learning_rate": rule, "warmup": rule, "base_world_size": 2, "cap": 3.0}
    scaled = resolved(made(rules, schedule={"warmup_steps": 10}, gradient_accumulation_steps=4), ranks)
    assert scaled == Resolved(ranks, 8 * 4 * ranks, factor, round(10 * factor))


def test_s1_the_guides_numbers_come_out_of_its_one_gpu_values() -> None:
    """Of seed 004: 16 x 4 a GPU, 5e-5 and 5000 steps of warmup, on 2, 4 and 8."""
    rules = {"learning_rate": "linear", "warmup": "linear", "base_world_size": 1}
    fields: dict[str, Any] = {
        "schedule": {"warmup_steps": 5000},
        "gradient_accumulation_steps": 4,
        "batch_size": 16,
    }
    of = [resolved(made(rules, **fields), ranks) for ranks in (1, 2, 4, 8)]
    assert [each.effective_batch_size for each in of] == [64, 128, 256, 512]
    assert [5e-5 * each.learning_rate for each in of] == [5e-5, 1e-4, 2e-4, 4e-4]
    assert [each.warmup_steps for each in of] == [5000, 10000, 20000, 40000]
    assert of[1].logged()["ddp/effective_batch_size"] == 128


@given(st.integers(1, 5000), st.integers(1, 4096), st.integers(1, 4096))
def test_a_warmup_is_whole_and_never_lost(warmup: int, base: int, ranks: int) -> None:
    rules = {"warmup": "sqrt", "base_world_size": base}
    steps = resolved(made(rules, schedule={"warmup_steps": warmup}), ranks).warmup_steps
    assert steps >= 1
    assert abs(steps - warmup * (ranks / base) ** 0.5) <= 1


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"learning_rate": "linear"}, r"base_world_size: is missing, but learning_rate: linear"),
        (
            {"warmup": "sqrt", "base_world_size": 1},
            r"scaling\.warmup: is sqrt, but there is no .*schedule",
        ),
    ],
)
def test_missing_fields_of_a_rule_are_reported(rules: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolved(made(rules), 2)


LINEAR = {"learning_rate": "linear", "base_world_size": 1}


@pytest.mark.parametrize(
    ("overrides", "rule"),
    [
        ([], "linear"),
        (["training.num_epochs=1"], "linear"),
        (["training.optimizer_kwargs.lr=1e-3"], "none"),
        (["training.optimizer_kwargs={lr: 1e-3}"], "none"),
        (["training.optimizer_kwargs={weight_decay: 0.1}"], "linear"),
        (["training.optimizer_kwargs.lr=1e-3", "training.scaling.learning_rate=linear"], "linear"),
        (
            ["training.scaling={learning_rate: sqrt, base_world_size: 1}", "training.optimizer_kwargs.lr=1"],
            "sqrt",
        ),
        (["training.optimizer_kwargs.lr=1e-3", "training.scaling.cap=2"], "none"),
    ],
)
def test_a_rate_on_the_command_line_is_literal(overrides: list[str], rule: str) -> None:
    stated = made(LINEAR, overrides)
    assert stated.training.scaling.learning_rate == rule
    written = Config.of(read_yaml(to_yaml(stated)))
    assert written.training.scaling == stated.training.scaling


def test_a_literal_rate_leaves_the_given_data_alone() -> None:
    data = config("x", scaling=LINEAR)
    Config.of(data, ["training.optimizer_kwargs.lr=1e-3"])
    assert data["training"]["scaling"] == LINEAR
    unscaled = Config.of(config("x"), ["training.optimizer_kwargs.lr=1e-3"])
    assert unscaled.training.scaling.learning_rate == "none"
