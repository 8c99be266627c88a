"""The engine: what a step of several ranks and micro-batches comes to."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.private_torch import version_of
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.engine import MOST_SKIPPED, Engine, NonFiniteError
from castoff.trainers.optimization.gradients import GradientNorm
from castoff.trainers.optimization.optimizer import make_optimizer
from castoff.trainers.optimization.strategy import strategy_of
from castoff.trainers.optimization.wrapping import _Everything, distributed, prepared_model
from castoff.trainers.task import Loss
from tests.trainers.toys import Toy, config, run

CPU = torch.device("cpu")
STEPS = 4
BATCH = 12


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))


SGD: dict[str, Any] = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.05, "momentum": 0.9}}
"""AdamW would hide a gradient of the wrong scale."""


def engine_of(model: nn.Module, fields: Config, context: RankContext) -> Engine:
    strategy = strategy_of(model, fields, context)
    return Engine(strategy, make_optimizer(fields, Toy(), strategy.bare), fields, context)


def engine(context: RankContext, parallel: Mapping[str, Any] = {}, **training: Any) -> Engine:
    made, model = Config.of({**config("out", **SGD, **training), "parallel": parallel}), layers()
    return engine_of(model, made, context)


def batch(step: int) -> tuple[Tensor, Tensor]:
    numbers = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))
    return numbers, numbers.sum(1, keepdim=True)


def weights_of(numbers: Tensor) -> Tensor:
    """As a sequence has tokens."""
    return (numbers[:, 0].abs() * 10).ceil()


def squared(model: nn.Module, numbers: Tensor, wanted: Tensor, counted: str) -> Loss:
    errors = ((model(numbers) - wanted) ** 2).squeeze(1)
    if counted == "samples":
        return Loss(errors.sum())
    weights = weights_of(numbers)
    count = weights.sum() if counted == "a tensor" else int(weights.sum())
    return Loss((errors * weights).sum(), count)


def expected(counted: str) -> list[Tensor]:
    """One process, the whole batch, the mean over its items."""
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), **SGD["optimizer_kwargs"])
    for step in range(STEPS):
        numbers, wanted = batch(step)
        weights = torch.ones(BATCH) if counted == "samples" else weights_of(numbers)
        errors = ((model(numbers) - wanted) ** 2).squeeze(1)
        optimizer.zero_grad()
        ((errors * weights).sum() / weights.sum()).backward()
        optimizer.step()
    return [each.detach() for each in model.parameters()]


def trained(made: Engine, context: RankContext, micros: int, counted: str) -> list[Tensor]:
    with made.wrapped():
        for step in range(STEPS):
            numbers, wanted = (part[context.rank :: context.world_size] for part in batch(step))
            made.begin(0)
            parts = list(zip(numbers.chunk(micros), wanted.chunk(micros), strict=True))
            for number, (some, theirs) in enumerate(parts):
                last = number == micros - 1
                with made.sync(last=last), made.autocast():
                    loss = made.loss(partial(squared, numbers=some, wanted=theirs, counted=counted))
                made.backward(loss, BATCH, micros, last=last)
            assert made.apply()
    return [each.detach() for each in made.bare.parameters()]


def joined() -> RankContext:
    me = RankEnv.detect()
    if me.world_size == 1:
        return RankContext(0, 1, CPU)
    return initialize_ddp(me.rank, me.world_size, device="cpu")


def train_counting(micros: int, counted: str) -> tuple[list[Tensor], int]:
    """The weights, and how often gradients were reduced."""
    place = joined()
    made = engine(place)
    reduced = 0
    if place.distributed:

        def wrapped(*what: Any) -> Any:
            nonlocal reduced

            def reduce(bucket: Any) -> Any:
                nonlocal reduced
                reduced += 1
                return allreduce_hook(None, bucket)  # type: ignore[arg-type]  # None: all ranks

            made_ddp = distributed(*what)
            made_ddp.register_comm_hook(None, lambda _, bucket: reduce(bucket))
            return made_ddp

        with patch("castoff.trainers.optimization.replicated.distributed", wrapped):
            answer = trained(made, place, micros, counted)
    else:
        answer = trained(made, place, micros, counted)
    cleanup_ddp()
    return answer, reduced


def same(mine: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("counted", ["samples", "a number", "a tensor"])
@pytest.mark.parametrize("micros", [1, 3])
def test_micro_batches_are_one_batch(micros: int, counted: str) -> None:
    context = RankContext(0, 1, CPU)
    same(trained(engine(context), context, micros, counted), expected(counted))


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(
    ("world_size", "micros", "counted"),
    [(2, 1, "samples"), (2, 3, "a number"), (3, 2, "samples"), (3, 1, "a tensor"), (4, 3, "a tensor")],
)
def test_ranks_are_one_process(world_size: int, micros: int, counted: str, tmp_path: Path) -> None:
    """And gradients are reduced once in a step, however many micro-batches it has."""
    answers = run(train_counting, micros, counted, folder=tmp_path / "ranks", world_size=world_size)
    for answer, reduced in answers:
        same(answer, expected(counted))
        assert all(torch.equal(one, other) for one, other in zip(answer, answers[0][0], strict=True))
        assert reduced == STEPS


def one_step(made: Engine, total: Callable[[Tensor], Tensor], count: int | None = None) -> bool:
    made.begin(0)
    with made.sync(last=True), made.autocast():
        loss = made.loss(lambda model: Loss(total(model(batch(0)[0])), count))
    made.backward(loss, BATCH, 1, last=True)
    return made.apply()


def weights(made: Engine) -> list[Tensor]:
    return [each.detach().clone() for each in made.bare.parameters()]


KNOBS: list[dict[str, Any]] = [
    {"communication_hook": "fp16"},
    {"find_unused_parameters": True},
    {"static_graph": True},
    {"bucket_cap_mb": 1},
    {"gradient_as_bucket_view": False},
]


def train_with_each() -> list[list[Tensor]]:
    """The weights with none of the knobs, and with each of them."""
    place = joined()
    found = [trained(engine(place, knob), place, 1, "a number") for knob in [{}, *KNOBS]]
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
def test_what_ddp_can_be_given_changes_nothing_but_roundings(tmp_path: Path) -> None:
    first, second = run(train_with_each, folder=tmp_path, world_size=2)
    for knob, mine, theirs in zip(KNOBS, first[1:], second[1:], strict=True):
        rounded = 1e-3 if "communication_hook" in knob else 0.0
        for one, other, plain in zip(mine, theirs, first[0], strict=True):
            assert torch.equal(one, other), knob
            torch.testing.assert_close(one, plain, rtol=rounded, atol=rounded)
            assert rounded or torch.equal(one, plain), knob


def train_compiled() -> list[list[Tensor]]:
    """The weights with and without."""
    place = joined()
    found = [
        trained(engine(place, compile=is_compiled), place, 2, "a tensor") for is_compiled in (True, False)
    ]
    cleanup_ddp()
    return found


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_a_compiled_model_trains_the_same(tmp_path: Path) -> None:
    for compiled, plain in run(train_compiled, folder=tmp_path, world_size=2):
        for one, other in zip(compiled, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def train_with_a_hook_for_accelerators() -> str:
    place = joined()
    # torch asks what it was built with, and not where it runs.
    with mock.patch.object(torch.version, "cuda", None), pytest.raises(ConfigError) as raised:
        trained(engine(place, {"communication_hook": "bf16"}), place, 1, "a number")
    cleanup_ddp()
    return str(raised.value)


@pytest.mark.usefixtures("for_real")
def test_a_hook_that_the_backend_does_not_have(tmp_path: Path) -> None:
    for said in run(train_with_a_hook_for_accelerators, folder=tmp_path, world_size=2):
        assert "parallel.communication_hook: is bf16, but torch has none for this backend (BF16" in said
        assert said.endswith("; write fp16, or leave it out")


def test_a_gradient_that_is_not_finite_ends_training() -> None:
    made = engine(RankContext(0, 1, CPU))
    before = weights(made)
    with pytest.raises(NonFiniteError, match=r"step 1: the loss of rank 0 is not .*0\.weight.*and 3 more"):
        one_step(made, lambda out: out.sum() * float("nan"))
    assert all(torch.equal(one, other) for one, other in zip(before, weights(made), strict=True))


def test_a_finite_loss_with_an_infinite_gradient() -> None:
    made = engine(RankContext(0, 1, CPU))
    with pytest.raises(NonFiniteError, match="all losses are finite, but the gradient is"):
        one_step(made, lambda out: (out.sum() * 0).sqrt())


def gradients_of(made: Engine, value: float, kind: torch.dtype = torch.float32) -> None:
    for each in made.bare.to(kind).parameters():
        each.grad = torch.full_like(each, value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_step_that_is_not_reported_needs_a_finite_gradient_and_no_norm(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(RankContext(0, 1, CPU), log_every=3)
    normed: list[int] = []

    def norm(_: GradientNorm, gradients: list[Tensor]) -> Tensor:
        normed.append(len(gradients))
        return torch.tensor(1.0)

    monkeypatch.setattr(GradientNorm, "__call__", norm)
    for step in range(6):
        made.begin(step)
        gradients_of(made, 1.0)
        assert made.apply()
        assert len(normed) == (step + 1) // 3, "the norm of what is not reported is read by nobody"
    monkeypatch.undo()
    made.begin(6)
    gradients_of(made, 1.0)
    last = list(made.bare.parameters())[-1].grad
    assert last is not None
    last.fill_(value)
    with pytest.raises(
        NonFiniteError, match=r"step 7: all losses are finite, but the gradient is .*: 4\.bias"
    ):
        made.apply()


def test_a_sum_that_overflows_leaves_it_to_the_norm() -> None:
    made = engine(RankContext(0, 1, CPU), log_every=3)
    gradients_of(made, 1000.0, torch.float16)
    assert torch.full((16, 32), 1000.0, dtype=torch.float16).sum().isinf()
    made.optimizer.param_groups[0]["lr"] = 1e-6
    assert made.apply()


@pytest.mark.parametrize("step", [0, 2])
def test_a_norm_that_overflows_clips_to_nothing(step: int) -> None:
    """Finite numbers may have an infinite norm; without clipping the step is the same, reported or not."""
    for clip in (None, 1.0):
        made = engine(RankContext(0, 1, CPU), log_every=3, clip_grad_norm=clip)
        made.begin(step)
        gradients_of(made, 1e25)
        if clip is None:
            assert made.apply()
            continue
        with pytest.raises(NonFiniteError, match="gradients that are not finite: none now"):
            made.apply()


def test_an_optimizer_may_have_its_own_way_to_forget_gradients() -> None:
    forgot = []

    class Own(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            forgot.append(set_to_none)

    made = engine(RankContext(0, 1, CPU))
    made.optimizer = Own(made.bare.parameters())
    gradients_of(made, 1.0)
    made.begin(0)
    assert forgot == [True]
    plain = engine(RankContext(0, 1, CPU))
    gradients_of(plain, 1.0)
    plain.begin(0)
    assert all(each.grad is None for each in plain.bare.parameters())


def test_such_steps_can_be_skipped(caplog: pytest.LogCaptureFixture) -> None:
    made = engine(RankContext(0, 1, CPU), non_finite="skip", ema_decay=0.9)
    assert made.average is not None
    before, averaged = weights(made), made.average.state_dict()
    assert not one_step(made, lambda out: out.sum() * float("inf"))
    assert all(torch.equal(one, other) for one, other in zip(before, weights(made), strict=True))
    assert made.average.state_dict() == averaged, "the average's decay would be that of a later step"
    assert made.skipped == 1
    assert "A step is skipped" in caplog.text
    assert one_step(made, torch.sum)
    assert not torch.equal(before[0], weights(made)[0])


def test_what_a_skipped_step_has_shown_is_forgotten() -> None:
    """Else BatchNorm would judge by NaN for ever, and no checkpoint would take it."""
    fields, model = Config.of(config("out", **SGD, non_finite="skip")), nn.BatchNorm1d(8)
    model.register_buffer("spread", torch.ones(1).expand(3))  # cannot be written to
    made = engine_of(model, fields, RankContext(0, 1, CPU))
    for number, taken in ((1.0, True), (float("nan"), False), (2.0, True)):
        before = {name: each.clone() for name, each in model.named_buffers()}
        made.begin(0)
        made.backward(Loss(made.model(batch(0)[0] * number).sum()), BATCH, 1, last=True)
        assert made.apply() == taken
        for name in ("running_mean", "num_batches_tracked"):
            assert torch.equal(before[name], model.get_buffer(name)) != taken


@pytest.mark.parametrize("count", ["nan", "inf"])
def test_a_count_that_is_none_costs_a_step_and_no_more(count: str) -> None:
    """As where items are weighed by what is in the data."""
    made, plain = (engine(RankContext(0, 1, CPU), non_finite="skip") for _ in range(2))
    for items, taken in ((float(count), False), (2.0, True), (float(count), False), (3.0, True)):
        for each in (made, plain) if taken else (made,):
            each.begin(0)
            total = each.model(batch(0)[0]).sum() * (1.0 if taken else float("nan"))
            each.backward(Loss(total, torch.tensor(items)), BATCH, 1, last=True)
            assert each.apply() == taken
    same(weights(made), weights(plain))


def test_but_not_for_ever() -> None:
    made = engine(RankContext(0, 1, CPU), non_finite="skip")
    for _ in range(MOST_SKIPPED - 1):
        assert not one_step(made, lambda out: out.sum() * float("nan"))
    with pytest.raises(NonFiniteError, match=rf"{MOST_SKIPPED} steps in a row"):
        one_step(made, lambda out: out.sum() * float("nan"))


def test_a_good_step_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.trainers.optimization.engine.MOST_SKIPPED", 2)
    made = engine(RankContext(0, 1, CPU), non_finite="skip")
    for _ in range(2):
        assert not one_step(made, lambda out: out.sum() * float("nan"))
        assert one_step(made, torch.sum)
    assert made.skipped == 2


def test_a_step_without_any_item(caplog: pytest.LogCaptureFixture) -> None:
    """As when every token of a batch is masked: no division by zero, and weights that stay numbers."""
    made = engine(RankContext(0, 1, CPU))
    before = weights(made)
    assert one_step(made, lambda out: out.sum() * 0, count=0)
    assert all(torch.equal(one, other) for one, other in zip(before, weights(made), strict=True))
    assert "No rank has an item" in caplog.text
    assert one_step(made, torch.sum, count=3)
    assert all(bool(torch.isfinite(each).all()) for each in weights(made))


def test_items_may_be_fractions() -> None:
    """Weights of samples, say, that add up to less than 1."""
    few, many = engine(RankContext(0, 1, CPU)), engine(RankContext(0, 1, CPU))
    for made, part in ((few, 0.001), (many, 1.0)):
        for step in range(2):
            made.begin(step)
            errors = made.model(batch(step)[0]) ** 2
            items = torch.tensor(BATCH * part)
            made.backward(Loss((errors * part).sum(), items), BATCH, 1, last=True)
            made.apply()
    same(weights(few), weights(many))


def test_a_model_of_doubles_is_one_throughout() -> None:
    """Counts of items that come otherwise than expected are corrected for in its own precision."""
    made = engine(RankContext(0, 1, CPU))
    made.bare.double()
    for items in (3, 7):
        made.begin(0)
        out = made.model(batch(0)[0].double())
        made.backward(Loss(out.sum(), items), BATCH, 1, last=True)
        wanted = torch.autograd.grad(made.bare(batch(0)[0].double()).sum() / items, made.bare[0].weight)[0]  # type: ignore[index]
        assert made.apply()
        torch.testing.assert_close(made.bare[0].weight.grad, wanted, rtol=1e-12, atol=1e-14)  # type: ignore[index]


class HalfUsed(nn.Module):
    """Has a part that no loss depends on, unless it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, numbers: Tensor, whole: bool = False) -> Tensor:
        out: Tensor = self.used(numbers)
        return out + self.unused(numbers) if whole else out


def train_half_used(parallel: dict[str, bool]) -> list[Tensor]:
    place = joined()
    fields, model = Config.of({**config("out", **SGD), "parallel": parallel}), HalfUsed()
    made = engine_of(model, fields, place)
    answer = trained(made, place, 1, "samples")
    cleanup_ddp()
    return answer


def half_used(model: nn.Module, whole: bool) -> Loss:
    return Loss(model(batch(0)[0], whole).sum())


def train_with_a_part_in_one_micro_batch(used_in: int) -> str | None:
    """What is said of a part that one micro-batch of three depends on."""
    place = joined()
    fields, model = Config.of(config("out", **SGD)), HalfUsed()
    made = engine_of(model, fields, place)
    said = None
    with made.wrapped():
        made.begin(0)
        for number in range(3):
            with made.sync(last=number == 2):
                loss = made.loss(partial(half_used, whole=number == used_in))
            made.backward(loss, 3 * BATCH, 3, last=number == 2)
        try:
            made.apply()
        except ConfigError as error:
            said = str(error)
    cleanup_ddp()
    return said


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("used_in", [1, 2])
def test_what_the_last_micro_batch_does_not_depend_on(used_in: int, tmp_path: Path) -> None:
    """Ranks would continue with weights of their own: DDP reduces what the last one reaches."""
    for said in run(train_with_a_part_in_one_micro_batch, used_in, folder=tmp_path, world_size=2):
        if used_in == 2:
            assert said is None
        else:
            assert "last micro-batch of step 1 does not depend on unused.weight, unused.bias, for" in said


def test_buckets_of_complex_weights_are_settled_in_silence(recwarn: pytest.WarningsRecorder) -> None:
    kinds = (torch.complex64, torch.float64, torch.bfloat16)
    everything = _Everything(nn.ParameterList(torch.ones(2, dtype=kind) for kind in kinds))
    everything().backward()
    assert all(each.grad is not None for each in everything.parameters())
    assert not recwarn.list


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("field", ["static_graph", "find_unused_parameters"])
def test_what_no_loss_depends_on(field: str, tmp_path: Path) -> None:
    """A static graph is that of a real step, and of none that went before it."""
    one, other = run(train_half_used, {field: True}, folder=tmp_path / "ranks", world_size=2)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(one[:2], other[:2], strict=True))


def test_a_static_graph_takes_no_micro_batches() -> None:
    """torch ends in an internal assertion."""
    fields = {**config("out", **SGD, gradient_accumulation_steps=2), "parallel": {"static_graph": True}}
    with pytest.raises(ConfigError, match=r"parallel\.static_graph: is true.*accumulation_steps is 2"):
        distributed(layers(), Config.of(fields), RankContext(0, 1, CPU))


def nan_on_rank_1() -> str:
    place = joined()
    made = engine(place)
    scale = float("nan") if os.environ["RANK"] == "1" else 1.0
    with made.wrapped():
        try:
            one_step(made, lambda out: out.sum() * scale)
        except NonFiniteError as error:
            said = str(error)
    cleanup_ddp()
    return said


@pytest.mark.usefixtures("for_real")
def test_the_rank_is_named_on_all_of_them(tmp_path: Path) -> None:
    for said in run(nan_on_rank_1, folder=tmp_path / "ranks", world_size=3):
        assert said.startswith("step 1: the loss of rank 1 is not finite")


def test_clipping_is_after_unscaling() -> None:
    """A loss scale of thousands would leave nothing of a gradient that is clipped before."""
    context = RankContext(0, 1, CPU)
    scaled, plain = engine(context, clip_grad_norm=0.5, precision="fp16"), engine(context, clip_grad_norm=0.5)
    for made in (scaled, plain):
        assert one_step(made, lambda out: (out**2).sum())
    assert float(plain.norm) > 0.5
    torch.testing.assert_close(scaled.norm, plain.norm, rtol=2e-2, atol=0)
    for one, other in zip(weights(scaled), weights(plain), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_correction_and_clipping_multiply_the_gradients_once(clip: float | None) -> None:
    """And not at all if there is nothing to correct; the reported norm is that of the corrected ones."""
    made = engine(RankContext(0, 1, CPU), clip_grad_norm=clip, log_every=1)
    for items, writes in ((4, 0 if clip is None else 1), (8, 1), (8, 0 if clip is None else 1)):
        made.begin(0)
        made.backward(Loss((made.model(batch(0)[0]) ** 2).sum() * 10, items), BATCH, 1, last=True)
        gradients = [each.grad for each in made.bare.parameters() if each.grad is not None]
        norm, before = nn.utils.get_total_norm(gradients), [version_of(each) for each in gradients]
        corrected = norm / 2 if writes and items == 8 and made._expected == 4 else norm
        made.apply()
        assert [version_of(each) for each in gradients] == [one + writes for one in before]
        torch.testing.assert_close(made.norm, corrected)
        left = nn.utils.get_total_norm(gradients)
        torch.testing.assert_close(left, corrected if clip is None else corrected.clamp(max=clip))


def test_a_scale_that_is_too_large_costs_a_step_and_no_more() -> None:
    made = engine(RankContext(0, 1, CPU), precision="fp16")
    before = weights(made)
    assert not one_step(made, lambda out: (out.float() * 1e6).sum() * 100)
    assert all(torch.equal(one, other) for one, other in zip(before, weights(made), strict=True))
    assert made.skipped == 1


def test_half_precision_sums_do_not_overflow() -> None:
    """A mean over 8,192 items is differentiated, and no sum of them."""
    made = engine(RankContext(0, 1, CPU), precision="fp16")
    numbers = torch.randn(8192, 8)
    for _ in range(3):
        made.begin(0)
        with made.sync(last=True), made.autocast():
            loss = Loss((made.model(numbers).float() ** 2).sum())
        made.backward(loss, 8192, 1, last=True)
        made.apply()
    assert made.skipped == 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_autocast(precision: str) -> None:
    made = engine(RankContext(0, 1, CPU), precision=precision)
    with made.sync(last=True), made.autocast():
        out = made.model(batch(0)[0])
    assert out.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]


def test_averaged_weights() -> None:
    """Against the formula, step by step; buffers are those of the model."""
    made = engine(RankContext(0, 1, CPU), ema_decay=0.9)
    assert made.average is not None
    assert made.judged is made.average.module
    wanted = weights(made)
    for number in range(30):
        assert one_step(made, lambda out: (out**2).mean())
        decay = min(0.9, (1 + number) / (10 + number))
        wanted = [decay * mine + (1 - decay) * new for mine, new in zip(wanted, weights(made), strict=True)]
    same([each.detach() for each in made.judged.parameters()], wanted)


def test_buffers_are_not_averaged_but_those_of_the_model() -> None:
    made = Config.of(config("out", **SGD, ema_decay=0.9))
    model = nn.Sequential(layers(), nn.BatchNorm1d(1))
    normed = engine_of(model, made, RankContext(0, 1, CPU))
    assert one_step(normed, lambda out: (out**3).sum())
    for mine, theirs in zip(normed.judged.buffers(), model.buffers(), strict=True):
        assert torch.equal(mine, theirs)
    assert model[1].num_batches_tracked == 1


def test_complex_weights_are_averaged() -> None:
    made = Config.of(config("out", **SGD, ema_decay=0.0))
    model = layers()
    turn = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    model.register_parameter("turn", turn)
    turning = engine_of(model, made, RankContext(0, 1, CPU))
    for _ in range(2):
        assert one_step(turning, lambda out: out.sum() + (turn * 1j).real.sum())
    assert torch.equal(dict(turning.judged.named_parameters())["turn"], turn)


def test_an_engine_resumes_from_its_state() -> None:
    """Optimizer, loss scale, average and expectation."""
    context = RankContext(0, 1, CPU)
    first, second = (engine(context, precision="fp16", ema_decay=0.9) for _ in range(2))
    assert first.average is not None and second.average is not None
    one_step(first, lambda out: (out.float() * 1e6).sum() * 100)  # skipped: the scale is another one
    one_step(first, lambda out: (out**2).sum(), count=5)
    second.bare.load_state_dict(first.bare.state_dict())
    second.average.module.load_state_dict(first.average.module.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for made in (first, second):
        one_step(made, lambda out: (out**2).sum(), count=3)
    for one, other in zip(first.judged.parameters(), second.judged.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.skipped == second.skipped == 1
    assert first.state_dict()["scaler"] == second.state_dict()["scaler"]


def test_batchnorm_over_ranks_needs_an_accelerator(tmp_path: Path) -> None:
    fields = {**config(tmp_path), "parallel": {"sync_batchnorm": True}}
    with pytest.raises(
        ConfigError, match=r"parallel\.sync_batchnorm: is true, but torch has it only on accel"
    ):
        prepared_model(Toy(), Config.of(fields), RankContext(0, 1, CPU))


@pytest.mark.parametrize("kinds", [(torch.float32, torch.float32), (torch.float32, torch.bfloat16)])
def test_the_norm_is_that_of_all_gradients_to_the_bit(kinds: tuple[torch.dtype, ...]) -> None:
    model = nn.ModuleList(nn.Linear(5, 7, dtype=kind) for kind in kinds)
    fields, alone = Config.of(config("out")), RankContext(0, 1, CPU)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = Engine(strategy_of(model, fields, alone), optimizer, fields, alone)
    for each in model.parameters():
        each.grad = torch.randn_like(each)
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    made.apply()
    assert torch.equal(made.norm, nn.utils.get_total_norm(gradients))
