"""What a resumed run may change: each field's class, and one line for each difference."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castoff.trainers.checkpointing.differences import MATTERS, REPORTED, SILENT, compare, digest
from castoff.trainers.configuration import flattened
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.flattened import fields
from castoff.trainers.configuration.section import Section
from castoff.trainers.configuration.yaml_text import read_yaml, to_yaml
from tests.trainers.toys import Toy

CHECKPOINT, STEP = "/runs/x/step-0000000400", 400


def config(**changed: Any) -> Config:
    """A configuration, with fields of `training.x` as training__x."""
    data: dict[str, Any] = {
        "training": {"path": "x", "num_epochs": 3, "batch_size": 8, "optimizer_type": torch.optim.SGD},
        "data": {"files": ["/scratch/a.zarr"]},
    }
    for path, value in changed.items():
        *sections, last = path.split("__")
        held = data
        for section in sections:
            held = held.setdefault(section, {})
        held[last] = value
    return Config.of(data)


def compared(before: dict[str, Any], now: dict[str, Any], ranks: tuple[int, int] = (1, 1)) -> Any:
    old, new = fields(config(**before), ranks[0]), fields(config(**now), ranks[1])
    return compare(json.loads(json.dumps(old)), new, CHECKPOINT, STEP)


def leaves(kind: type[Any], above: str = "") -> Iterator[str]:
    """The paths of all fields that are not sections."""
    for field in msgspec.structs.fields(kind):
        options = getattr(field.type, "__args__", (field.type,))
        inner = next((each for each in options if isinstance(each, type) and issubclass(each, Section)), None)
        if inner is None:
            yield above + field.name
        else:
            yield from leaves(inner, f"{above}{field.name}.")


def test_every_field_is_of_one_class() -> None:
    """A new field must be put into one: is it another training with another value?"""
    declared = [*SILENT, *REPORTED, *MATTERS]
    entries = {
        leaf: [entry for entry in declared if flattened.under(leaf, [entry])] for leaf in leaves(Config)
    }
    assert {leaf: found for leaf, found in entries.items() if len(found) != 1} == {}
    used = {found[0] for found in entries.values()}
    assert set(declared) - used == {flattened.WORLD_SIZE, flattened.GLOBAL_BATCH}


WORDS = st.text(max_size=5)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(WORDS, PLAIN, max_size=3), st.integers(1, 8))
def test_nothing_has_changed(arguments: dict[str, Any], ranks: int) -> None:
    """Nor has it in the file that a checkpoint is."""
    now = fields(config(model=arguments, training__optimizer_kwargs=arguments), ranks)
    found = compare(json.loads(json.dumps(now)), now, CHECKPOINT, STEP)
    assert (found.refused, found.reported) == ([], [])
    found.check()


CHANGES: dict[str, tuple[Any, Any]] = {
    # what the first says, what the second says
    "training__seed": (0, 1),
    "training__shuffle": (True, False),
    "training__drop_last": (False, True),
    "training__optimizer_type": (torch.optim.SGD, torch.optim.Adam),
    "training__ema_decay": (None, 0.9),
    "task": (None, Toy),
    "task_kwargs": ({"mean": 64}, {"mean": 65}),
    "criterion": (print, len),
    "apply_model": (None, print),
    "model": ({"hidden": [64, 64]}, {"hidden": [64, 32]}),
    "data": ({"files": ["/a/x.zarr"]}, {"files": ["/a/y.zarr"]}),
    "training__num_epochs": (3, 6),
    "training__optimizer_args": ([0.1], [0.2]),
    "training__optimizer_kwargs": ({"lr": 0.01}, {"lr": 0.001}),
    "training__schedule": (None, {"type": "cosine", "warmup_steps": 5}),
    "training__lr_scheduler_type": (None, torch.optim.lr_scheduler.StepLR),
    "training__lr_scheduler_args": ([1], [2]),
    "training__lr_scheduler_kwargs": ({"gamma": 0.1}, {"gamma": 0.2}),
    "training__lr_scheduler_per": (None, "step"),
    "training__scaling__cap": (4.0, 8.0),
    "training__clip_grad_norm": (None, 1.0),
    "training__non_finite": ("stop", "skip"),
    "training__device": ("cpu", "cuda"),
    "training__precision": ("fp32", "bf16"),
    "training__compile": (False, True),
    "early_stopping": (None, {"kwargs": {"patience": 3}}),
    "validation__every_steps": (None, 10),
    "parallel__backend": (None, "gloo"),
    "parallel__bucket_cap_mb": (None, 4),
    "parallel__communication_hook": (None, "bf16"),
    "training__path": ("x", "y"),
    "training__run": (None, "mine"),
    "training__log_every": (1, 2),
    "training__check_first_step": (True, False),
    "training__num_workers": (0, 2),
    "training__keep_checkpoints": (2, 3),
    "parallel__timeout": (600.0, 60.0),
    "parallel__world_size": (None, 1),
    "logging__wandb": (None, {"project": "p"}),
    "testing__batch_size": (None, 4),
    "name": ("a", "b"),
}


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("turned", [False, True])
def test_a_field_that_has_changed_is_one_line(field: str, turned: bool) -> None:
    before, now = reversed(CHANGES[field]) if turned else CHANGES[field]
    found = compared({field: before}, {field: now})
    path = field.replace("__", ".")
    kind = next(kind for kind in (SILENT, REPORTED, MATTERS) if flattened.under(path, kind))
    assert (len(found.refused), len(found.reported)) == (kind is MATTERS, kind is REPORTED)
    for line in (*found.refused, *found.reported):
        assert line.startswith(path)
    assert all(CHECKPOINT in line for line in found.refused)
    assert all("until step 400" in line and line.endswith("from here on") for line in found.reported)
    same = digest(fields(config(**{field: before}), 1)) == digest(fields(config(**{field: now}), 1))
    assert same is (kind is not MATTERS)


@pytest.mark.parametrize("pair", [*itertools.pairwise(CHANGES)], ids="-".join)
def test_two_that_have_changed_are_two_lines(pair: tuple[str, str]) -> None:
    alone = [compared({field: CHANGES[field][0]}, {field: CHANGES[field][1]}) for field in pair]
    before, now = ({field: CHANGES[field][side] for field in pair} for side in (0, 1))
    both = compared(before, now)
    assert sorted(both.refused) == sorted(line for each in alone for line in each.refused)
    assert sorted(both.reported) == sorted(line for each in alone for line in each.reported)


def test_the_words() -> None:
    found = compared({"training__clip_grad_norm": 2.0}, {"training__clip_grad_norm": 1.0})
    assert found.reported == ["training.clip_grad_norm: was 2.0 until step 400, is 1.0 from here on"]
    with pytest.raises(ConfigError) as error:
        compared({}, {"training__seed": 1, "model": {"width": 3}}).check()
    first, second, ways_out = error.value.problems
    assert first == f"training.seed: is 1, but {CHECKPOINT} was made with 0"
    assert second == f"model.width: is 3, but {CHECKPOINT} was made with none given"
    for way in ("restore the checkpoint's values", "--fresh", "training.run: NAME"):
        assert way in ways_out


@pytest.mark.parametrize(
    ("before", "now", "ranks", "says"),
    [
        ({}, {"training__batch_size": 16}, (1, 1), "training.batch_size: the global batch"),
        ({}, {}, (2, 4), "8 x 1 x 4 = 32, but .* 8 x 1 x 2 = 16; training.batch_size: 4 keeps it"),
        ({}, {"training__gradient_accumulation_steps": 3}, (1, 1), "training.gradient_accumulation_steps: "),
        ({}, {}, (2, 3), "world size: .* = 16$"),  # no batch size makes 16 of 3 ranks
    ],
)
def test_another_global_batch(
    before: dict[str, Any], now: dict[str, Any], ranks: tuple[int, int], says: str
) -> None:
    found = compared(before, now, ranks)
    assert (len(found.refused), found.reported) == (1, [])
    with pytest.raises(ConfigError, match=says):
        raise ConfigError(found.refused)


def test_the_same_global_batch_dealt_out_otherwise() -> None:
    found = compared({"training__batch_size": 8}, {"training__batch_size": 4}, (1, 2))
    assert found.refused == []
    assert sorted(line.partition(":")[0] for line in found.reported) == ["training.batch_size", "world size"]


def test_a_file_that_has_moved_is_the_same_file() -> None:
    found = compared({"data": {"files": ["/scratch/a.pt", 3]}}, {"data": {"files": ["/project/me/a.pt", 3]}})
    assert (found.refused, len(found.reported)) == ([], 1)
    assert len(compared({"data": {"files": ["org/a"]}}, {"data": {"files": ["other/a"]}}).refused) == 1


def test_an_average_may_get_longer_but_not_begin_late() -> None:
    found = compared({"training__ema_decay": 0.9}, {"training__ema_decay": 0.99})
    assert (found.refused, len(found.reported)) == ([], 1)


def test_the_task_of_a_program() -> None:
    now = fields(config(), 1, Toy())
    assert now["task"] == "!pyobject tests.trainers.toys.Toy"
    assert compare(fields(config(task=Toy), 1), now, CHECKPOINT, STEP).refused == []
    assert len(compare(fields(config(), 1), now, CHECKPOINT, STEP).refused) == 1


class Says(Toy):
    """What its arguments are to it."""

    volatile_arguments = ("folder", "shown.every")
    changeable_arguments = ("shown",)


@pytest.mark.parametrize(
    ("before", "now", "refused", "stated"),
    [
        ({"folder": "/a/x"}, {"folder": "/b/y"}, 0, 0),
        ({"folder": {"train": "x"}}, {"folder": {"train": "y"}}, 0, 0),
        ({"shown": {"every": 1}}, {"shown": {"every": 2}}, 0, 0),
        ({"shown": {"steps": 8}}, {"shown": {"steps": 9, "every": 2}}, 0, 1),
        ({"shown": None}, {"shown": {"steps": 9}}, 0, 1),
        ({"folders": "x"}, {"folders": "y"}, 1, 0),
        ({"samples": 203}, {"folder": "x"}, 1, 0),
    ],
)
def test_a_task_declares_which_arguments_may_change(
    before: dict[str, Any], now: dict[str, Any], refused: int, stated: int
) -> None:
    old, new = fields(config(task_kwargs=before), 1), fields(config(task_kwargs=now), 1)
    found = compare(old, new, CHECKPOINT, STEP, Says())
    assert (len(found.refused), len(found.reported)) == (refused, stated)
    assert (digest(old, Says()) == digest(new, Says())) is not bool(refused)
    assert len(compare(old, new, CHECKPOINT, STEP, Toy()).reported) == 0


@pytest.mark.parametrize("wrong", ["folder", [3], [""], None])
def test_arguments_that_are_none(wrong: Any) -> None:
    class Wrong(Toy):
        volatile_arguments = wrong

    with pytest.raises(
        ConfigError, match=r"task: Wrong\.volatile_arguments is .*; it takes names of arguments"
    ):
        compare({}, {}, CHECKPOINT, STEP, Wrong())


def test_what_python_code_gives_is_the_same_in_each_process() -> None:
    """An address is none of its value; nor is the name that a program has depends on how it was started."""
    now = fields(config(model={"act": functools.partial(print, 3), "set": {"b", "a"}}), 1)
    assert now["model.act"] == "functools.partial(<built-in function print>, 3)"
    assert now["model.set"] == ["a", "b"]
    assert "0x" not in fields(config(criterion=object()), 1)["criterion"]
    assert flattened._script("__main__.loss") == flattened._script("__mp_main__.loss")


def test_the_configuration_that_a_run_writes_down_is_the_same_training() -> None:
    mine = config(**{field: values[1] for field, values in CHANGES.items()})
    again = Config.of(read_yaml(to_yaml(mine)))
    assert fields(again, 2) == fields(mine, 2)
