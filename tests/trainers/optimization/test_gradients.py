"""The norm of gradients, in DDP's buckets and outside of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.gradients import GradientNorm
from tests.trainers.optimization.test_engine import batch, engine, squared
from tests.trainers.toys import run

SHAPES = [(3, 4), (5,), (), (0,)]


def in_a_bucket(padding: int = 0, kind: torch.dtype = torch.float32) -> list[Tensor]:
    """Gradients that lie in one piece of memory, with some of nobody's at its end."""
    sizes = [torch.Size(shape).numel() for shape in SHAPES]
    whole = torch.randn(sum(sizes) + padding, dtype=kind)
    parts = whole.split([*sizes, padding])
    return [part.view(shape) for part, shape in zip(parts, SHAPES, strict=False)]


def test_a_bucket_is_reduced_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = in_a_bucket()
    norm = GradientNorm(gradients, in_buckets=True)
    expected = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients]))
    monkeypatch.delattr(torch, "_foreach_norm")
    assert torch.equal(norm(gradients), expected)
    gradients[0].mul_(2)
    twice = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients]))
    assert torch.equal(norm(gradients), twice)


@pytest.mark.parametrize("missing", [0, 1])
def test_memory_that_is_not_theirs_alone_is_left_alone(missing: int) -> None:
    """NaN stands where no gradient is, or where that of a parameter is which was not used."""
    gradients = in_a_bucket(padding=1 - missing)
    (gradients[0] if missing else torch.empty(0).set_(gradients[0].untyped_storage())[-1:]).fill_(torch.nan)
    present = gradients[missing:]
    norm = GradientNorm(gradients, in_buckets=True)(present)
    assert torch.equal(norm, nn.utils.get_total_norm(present))
    assert norm.isfinite()


def test_gradients_that_come_to_lie_elsewhere() -> None:
    first, second = in_a_bucket(), in_a_bucket()
    norm = GradientNorm(first, in_buckets=True)
    for gradients in (first, second, first[:2], first):
        torch.testing.assert_close(norm(gradients), nn.utils.get_total_norm(gradients))


def test_buckets_of_two_types() -> None:
    gradients = [*in_a_bucket(), *in_a_bucket(kind=torch.float64)]
    norm = GradientNorm(gradients, in_buckets=True)(gradients)
    torch.testing.assert_close(norm, nn.utils.get_total_norm(gradients))
    assert not GradientNorm([], in_buckets=True)([])


def buckets(made: Engine) -> list[Tensor]:
    norm = made.strategy.norm
    assert isinstance(norm, GradientNorm)
    return norm._buckets


def train() -> tuple[int, int]:
    me = RankEnv.detect()
    made = engine(initialize_ddp(me.rank, me.world_size, device="cpu"))
    with made.wrapped():
        for step in range(2):
            made.begin(step)
            numbers, wanted = batch(me.rank)
            loss = made.loss(partial(squared, numbers=numbers, wanted=wanted, counted="samples"))
            made.backward(loss, 24, 1, last=True)
            made.apply()
            gradients = [each.grad for each in made.bare.parameters() if each.grad is not None]
            torch.testing.assert_close(made.norm, nn.utils.get_total_norm(gradients))
        reduced = sum(each.numel() for each in buckets(made))
    assert not buckets(made), "it would keep DDP's memory"
    cleanup_ddp()
    return reduced, sum(each.numel() for each in made.bare.parameters())


def test_ranks_find_their_gradients_in_buckets(tmp_path: Path) -> None:
    for reduced, weights in run(train, folder=tmp_path, world_size=2):
        assert reduced == weights
