"""Sharding over the ranks: the same numbers as with whole models, and a part of the memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp
from castoff.trainers.optimization.engine import Engine, NonFiniteError
from castoff.trainers.optimization.local import local
from castoff.trainers.optimization.sharded_modules import chosen
from castoff.trainers.optimization.strategy import strategy_of
from castoff.trainers.optimization.turns import make_engine
from castoff.trainers.optimization.wrapping import prepared_model
from castoff.trainers.task import Loss
from tests.trainers.optimization.test_activation_checkpointing import Block
from tests.trainers.optimization.test_engine import (
    BATCH,
    SGD,
    batch,
    engine_of,
    expected,
    joined,
    layers,
    same,
    trained,
)
from tests.trainers.optimization.test_turns import Adversaries
from tests.trainers.toys import Toy, config, run

ALONE = RankContext(0, 1, torch.device("cpu"))
FSDP: dict[str, Any] = {"strategy": "fsdp"}


class Built(Toy):
    """A task with a given model."""

    def __init__(self, build: Any):
        super().__init__()
        self.build = build

    def build_model(self) -> nn.Module:
        torch.manual_seed(0)
        model: nn.Module = self.build()
        return model


class Mixed(nn.Module):
    """Blocks, weights in two places, a frozen layer, a parameter that is a number, and a second method."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.last = nn.Linear(8, 8)
        self.last.weight = self.first.weight
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(()))
        self.out = nn.Linear(8, 1)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.twice(numbers) * self.scale

    def twice(self, numbers: Tensor) -> Tensor:
        numbers = self.first(numbers)
        for block in (*self.blocks, self.blocks[0]):
            numbers = block(numbers)
        out: Tensor = self.out(self.frozen(self.last(numbers)))
        return out


def made(place: RankContext, parallel: Mapping[str, Any], build: Any = layers, **training: Any) -> Engine:
    fields = Config.of({**config("out", **SGD, **training), "parallel": parallel})
    return engine_of(prepared_model(Built(build), fields, place), fields, place)


def sharded(place: RankContext, fsdp: Mapping[str, Any] = {}, build: Any = layers, **training: Any) -> Engine:
    return made(place, {**FSDP, "fsdp": dict(fsdp)}, build, **training)


# --- The numbers ----------------------------------------------------------------------------------

PLAIN: list[tuple[int, str, dict[str, Any]]] = [
    (1, "samples", {}),
    (3, "a number", {}),
    (1, "a tensor", {"modules": []}),
    (3, "samples", {"modules": ["2"], "reshard_after_forward": False}),
    (2, "a tensor", {}),
]
"""Micro-batches, what is counted, and `parallel.fsdp`."""


def parts_of(engine: Engine) -> float:
    """The share of the weights that this rank has."""
    parameters = list(engine.bare.parameters())
    return sum(local(each).numel() for each in parameters) / sum(each.numel() for each in parameters)


def train_plainly(numbers: list[int]) -> list[list[Tensor]]:
    place = joined()
    found = []
    for micros, counted, fsdp in (PLAIN[number] for number in numbers):
        engine = sharded(place, fsdp)
        assert parts_of(engine) < 1.2 / place.world_size
        found.append(trained(engine, place, micros, counted))
        assert parts_of(engine) == 1
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(("world_size", "cases"), [(2, [0, 1, 2, 3]), (3, [0, 4]), (4, [1])])
def test_ranks_are_one_process(world_size: int, cases: list[int], tmp_path: Path) -> None:
    answers = run(train_plainly, cases, folder=tmp_path, world_size=world_size)
    for answer in answers:
        for mine, first, case in zip(answer, answers[0], cases, strict=True):
            same(mine, expected(PLAIN[case][1]))
            assert all(torch.equal(one, other) for one, other in zip(mine, first, strict=True))


VARIANTS: list[dict[str, Any]] = [
    {},
    {"clip_grad_norm": 0.1, "ema_decay": 0.9},
    {"activation_checkpointing": ["Block"], "non_finite": "skip"},
]


def train_mixed(place: RankContext, parallel: Mapping[str, Any], variant: Mapping[str, Any]) -> list[Tensor]:
    engine = made(place, parallel, Mixed, **variant)
    torch.manual_seed(place.rank)
    trained(engine, place, 1, "a tensor")
    return [*engine.bare.state_dict().values(), *engine.judged.state_dict().values(), engine.norm]


def train_with_both() -> list[tuple[list[Tensor], list[Tensor]]]:
    place = joined()
    found = [(train_mixed(place, {}, each), train_mixed(place, FSDP, each)) for each in VARIANTS]
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_the_numbers_are_those_of_ddp(world_size: int, tmp_path: Path) -> None:
    """With shared, frozen and 0-dimensional parameters, buffers, and a block that is called twice."""
    answers = run(train_with_both, folder=tmp_path, world_size=world_size)
    for whole, parts in answers[0]:
        for mine, theirs in zip(parts, whole, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    for answer in answers[1:]:
        for (_, parts), (_, first) in zip(answer, answers[0], strict=True):
            assert all(torch.equal(one, other) for one, other in zip(parts, first, strict=True))


def train_in_pairs() -> tuple[list[Tensor], float, tuple[bool, bool, bool]]:
    """On two nodes, or so it seems."""
    rank = int(os.environ["RANK"])
    os.environ |= {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": str(rank % 2), "NODE_RANK": str(rank // 2)}
    place = joined()
    engine = sharded(place, {"within": "node"})
    part = parts_of(engine)
    found = trained(engine, place, 3, "a number")
    alike = engine.strategy.alike
    same_in_pairs = (
        alike(torch.tensor([rank % 2])),
        alike(torch.tensor([rank // 2])),
        alike(torch.tensor([1])),
    )
    cleanup_ddp()
    return found, part, same_in_pairs


@pytest.mark.usefixtures("for_real")
def test_each_node_has_a_copy(tmp_path: Path) -> None:
    for found, part, same_in_pairs in run(train_in_pairs, folder=tmp_path, world_size=4):
        same(found, expected("a number"))
        assert 0.4 < part < 0.6
        assert same_in_pairs == (True, False, True)


# --- What is not finite, or missing ---------------------------------------------------------------


def infinite_weight(model: nn.Module) -> Loss:
    weight = model.get_parameter("0.weight")
    scale = torch.ones_like(weight)
    scale[-1] = float("inf")  # this row belongs to the last rank
    return Loss(sum(each.sum() for each in model.parameters()) + (weight * scale).sum())


def step_to_infinity(skips: bool) -> tuple[bool | str, list[Tensor]]:
    place = joined()
    engine = sharded(place, {"modules": []}, non_finite="skip" if skips else "stop")
    found: bool | str = False
    with engine.wrapped():
        engine.begin(0)
        engine.backward(engine.loss(infinite_weight), BATCH, 1, last=True)
        try:
            found = engine.apply()
        except NonFiniteError as error:
            found = str(error)
    cleanup_ddp()
    return found, [each.detach() for each in engine.bare.parameters()]


@pytest.mark.usefixtures("for_real")
def test_all_ranks_skip_a_step_whose_gradient_is_not_finite_on_one(tmp_path: Path) -> None:
    for done, weights in run(step_to_infinity, True, folder=tmp_path, world_size=2):
        assert done is False
        assert all(torch.equal(one, other) for one, other in zip(weights, layers().parameters(), strict=True))


@pytest.mark.usefixtures("for_real")
def test_all_ranks_name_a_gradient_that_is_not_finite_on_one(tmp_path: Path) -> None:
    for said, _ in run(step_to_infinity, False, folder=tmp_path, world_size=2):
        assert "the loss of rank 0, 1 is not finite; gradients that are not finite: 0.weight. " in said


def outside(model: nn.Module) -> Loss:
    return Loss(nn.functional.linear(batch(0)[0], model.get_parameter("0.weight")).sum())


def partly(model: nn.Module) -> Loss:
    return Loss(model.get_submodule("0")(batch(0)[0]).sum())


def say(compute: Any) -> str:
    place = joined()
    engine = sharded(place)
    said = ""
    try:
        with engine.wrapped():
            engine.begin(0)
            engine.backward(engine.loss(compute), BATCH, 1, last=True)
            engine.apply()
    except ConfigError as error:
        said = str(error)
    cleanup_ddp()
    return said


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (outside, "parallel.fsdp.modules: 0, 2, 4 are sharded on their own, and have whole parameters only"),
        (
            partly,
            "model: the loss of step 1 does not depend on 2.weight, 2.bias, 4.weight, 4.bias, for",
        ),
    ],
)
def test_mistakes_of_a_loss(compute: Any, expected: str, tmp_path: Path) -> None:
    for said in run(say, compute, folder=tmp_path, world_size=2):
        assert said.startswith(expected)
    assert "find_unused_parameters" not in said


def uneven(model: nn.Module, rank: int) -> Loss:
    """Each rank's loss depends on another parameter; both parameters have the same size."""
    outputs = batch(rank)[0] @ model.get_parameter(f"{rank}.weight")
    biases = torch.cat([model.get_parameter("0.bias"), model.get_parameter("1.bias")])
    return Loss(outputs.square().sum() + biases.sum())


def logged_by_ranks() -> list[str]:
    place = joined()
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(strategy_of.__module__)
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    sharded(place)
    sharded(place, {"modules": []})
    cleanup_ddp()
    return said


@pytest.mark.usefixtures("for_real")
def test_the_log_says_what_is_sharded(tmp_path: Path) -> None:
    assert run(logged_by_ranks, folder=tmp_path, world_size=2) == [
        [
            "fsdp: 0, 2, 4 are sharded on their own, over 2 ranks",
            "fsdp: the model is sharded as one, over 2 ranks",
        ],
        [],
    ]


def step_unevenly() -> list[list[Tensor]]:
    place = joined()
    found = []
    for parallel in ({"find_unused_parameters": True}, {**FSDP, "fsdp": {"modules": []}}):
        engine = made(place, parallel, lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
        with engine.wrapped():
            engine.begin(0)
            engine.backward(engine.loss(partial(uneven, rank=place.rank)), BATCH, 1, last=True)
            engine.apply()
        found.append([each.detach() for each in engine.bare.parameters()])
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
@pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reduce_scatter_unused_params"), reason="torch before 2.13 cannot"
)
def test_ranks_may_use_different_parameters(tmp_path: Path) -> None:
    for whole, parts in run(step_unevenly, folder=tmp_path, world_size=2):
        same(parts, whole)


# --- Which modules --------------------------------------------------------------------------------


def names(model: nn.Module, patterns: list[str] | None = None) -> list[str]:
    return [name for name, _ in chosen(model, patterns)]


def test_blocks_that_repeat_are_sharded_on_their_own() -> None:
    assert names(layers()) == ["0", "2", "4"]
    assert names(Mixed()) == ["blocks.0", "blocks.1"]
    assert names(nn.Linear(2, 2)) == []
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 3)
    assert names(nn.ModuleDict({"encoder": encoder, "head": nn.Linear(8, 2)})) == [
        f"encoder.layers.{number}" for number in range(3)
    ]


def test_inner_modules_come_first() -> None:
    assert names(Mixed(), ["Block", "blocks.0.inner"]) == ["blocks.0.inner", "blocks.0", "blocks.1"]


def test_what_shares_a_parameter_is_not_sharded_on_its_own() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    assert names(model) == ["1"]
    with pytest.raises(ConfigError, match=r"fsdp\.modules: 0, 2 share parameters with other parts"):
        names(model, ["0", "2"])


# --- The configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parallel", "training", "expected"),
    [
        (
            {"fsdp": {}},
            {},
            "parallel.fsdp: is given, but parallel.strategy is ddp; write fsdp",
        ),
        (
            {**FSDP, "static_graph": True},
            {},
            "parallel.static_graph: is true, an argument of DistributedData",
        ),
        ({**FSDP, "bucket_cap_mb": 5}, {}, "parallel.bucket_cap_mb: is 5, an argument of Distr"),
        (
            {**FSDP, "communication_hook": "fp16"},
            {},
            'parallel.communication_hook: is "fp16", an arg',
        ),
        (
            {**FSDP, "find_unused_parameters": True},
            {},
            "parallel.find_unused_parameters: is true, an argument",
        ),
        (FSDP, {"precision": "fp16"}, "training.precision: is fp16, for which the loss is scaled, which"),
    ],
)
def test_fields_that_a_strategy_does_not_have(
    parallel: dict[str, Any], training: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.of({**config(tmp_path, **training), "parallel": parallel})
    assert expected in str(caught.value)


def test_defaults_of_ddp_are_no_contradiction(tmp_path: Path) -> None:
    Config.of({**config(tmp_path), "parallel": {**FSDP, "gradient_as_bucket_view": True, "fsdp": None}})


def test_a_single_process_has_the_whole_model(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        engine = sharded(ALONE)
    assert not engine.strategy.sharded
    assert caplog.messages == ["fsdp: one rank, so nothing is sharded"]


# --- What cannot be sharded, also on one rank ------------------------------------------------------


class Odd(nn.Module):
    """Three blocks, one of which has an odd parameter."""

    def __init__(self, odd: Tensor, inside: int = 1):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.blocks[inside].odd = nn.Parameter(odd)


@pytest.mark.parametrize(
    ("odd", "expected"),
    [
        (torch.ones(0, 5), "model: blocks.1.odd: without elements, which parallel.strategy: fsdp cannot"),
        (torch.ones(5, 10)[:, ::2], "model: blocks.1.odd: not contiguous, which parallel.strategy: fsdp"),
        (
            torch.ones(5).double(),
            "model: blocks.1.odd: torch.float64, but gathered together with torch.float",
        ),
        (torch.ones(5, dtype=torch.complex64), "model: blocks.1.odd: torch.complex64, but gathered"),
    ],
)
def test_parameters_that_torch_cannot_shard(odd: Tensor, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sharded(ALONE, build=partial(Odd, odd))
    assert str(caught.value).startswith(expected)
    made(ALONE, {}, partial(Odd, odd))


def test_types_may_differ_between_modules() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).double(), nn.Linear(8, 1).bfloat16())

    sharded(ALONE, build=build)
    with pytest.raises(ConfigError, match=r"1\.weight, 1\.bias: torch\.float64, but gathered together with"):
        sharded(ALONE, {"modules": ["2"]}, build=build)


def test_mistakes_are_the_same_on_one_rank(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"parallel\.fsdp\.modules: 'Blok' is neither the name nor"):
        sharded(ALONE, {"modules": ["Blok"]})
    freeze: dict[str, Any] = {"freeze": [{"modules": ["0"], "until": 2}]}
    with pytest.raises(ConfigError, match=r"training\.freeze: works only with parallel\.strategy: ddp; the"):
        sharded(ALONE, **freeze)
    fields = Config.of({**config(tmp_path, optimizer_type=None, optimizer_kwargs={}), "parallel": FSDP})
    task = Adversaries()
    with pytest.raises(ConfigError, match=r"parallel\.strategy: is fsdp, but optimizers can take turns"):
        make_engine(strategy_of(task.build_model(), fields, ALONE), task, fields, ALONE)
