from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.optimization.wrapping import compiled
from castoff.trainers.sedd.alphabet import MASK, PADDING
from castoff.trainers.sedd.model import SIZES, Block, DiffusionTransformer, Shape, rotations, shape_of, turned
from castoff.trainers.sedd.settings import Model

SHAPE = Shape(32, 2, 4, 16, dropout=0.0)


def trained(shape: Shape = SHAPE, **arguments: Any) -> DiffusionTransformer:
    """As if trained: nothing in it is zero."""
    torch.manual_seed(0)
    model = DiffusionTransformer(shape, **{"scale_by_sigma": True, **arguments})
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model.eval()


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(MASK + 1, shape, generator=torch.Generator().manual_seed(seed))


SIGMA = torch.tensor([0.3, 2.0])


def test_an_untrained_model_has_the_scores_of_the_noise() -> None:
    score = DiffusionTransformer(SHAPE, scale_by_sigma=True)(tokens(2, 5), SIGMA)
    wanted = -torch.log(20 * torch.expm1(SIGMA))
    torch.testing.assert_close(score, wanted[:, None, None].expand(2, 5, 20))
    assert not DiffusionTransformer(SHAPE, scale_by_sigma=False)(tokens(2, 5), SIGMA).any()


def test_padding_changes_nothing() -> None:
    model, short = trained(), tokens(2, 7)
    padded = torch.nn.functional.pad(short, (0, 5), value=PADDING)
    alone = model(short, SIGMA, padded=False)
    torch.testing.assert_close(model(padded, SIGMA)[:, :7], alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(short, SIGMA), alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(padded, SIGMA, padded=False)[:, :7], alone, atol=1e-3)


def test_order_neighbours_and_noise_matter() -> None:
    model, one = trained(), tokens(2, 7)
    score = model(one, SIGMA)
    assert not torch.allclose(model(one.flip(1), SIGMA).flip(1), score, atol=1e-3)
    assert not torch.allclose(model(one, SIGMA * 1.1) - score, (model(one, SIGMA * 1.1) - score)[:1, :1, :1])
    other = one.clone()
    other[:, 0] = (other[:, 0] + 1) % 20
    assert not torch.allclose(model(other, SIGMA)[:, -1], score[:, -1], atol=1e-4)


def test_turned_queries_and_keys_know_distances_alone() -> None:
    query, key = torch.randn(8), torch.randn(8)
    turns = rotations(40, 8, torch.device("cpu"))

    def product(first: int, second: int) -> float:
        a, b = (turned(x.expand(40, 8), turns)[at] for x, at in ((query, first), (key, second)))
        return float(a @ b)

    assert product(3, 10) == pytest.approx(product(30, 37), abs=1e-5)
    assert product(3, 10) != pytest.approx(product(3, 11), abs=1e-3)


def test_checkpointing_changes_no_gradient() -> None:
    """What is dropped is dropped again."""
    gradients, begun = [], []
    for checkpointing in (False, True):
        model = trained(SHAPE._replace(dropout=0.5), checkpointing=checkpointing).train()
        torch.manual_seed(1)
        for block in model.blocks:
            block.register_forward_pre_hook(lambda _, __, which=checkpointing: begun.append(which))
        model(tokens(2, 6), SIGMA).square().sum().backward()
        gradients.append([each.grad for each in model.parameters()])
    assert (begun.count(False), begun.count(True)) == (2, 4), "each block is computed again"
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_compiled_it_is_the_same() -> None:
    """For batches of any shape, padded and not, and again after others."""
    shapes = [(4, 64, True), (3, 96, False), (2, 33, True), (4, 64, False), (1, 32, True), (1, 1, False)]
    answers = []
    for whole in (lambda model: model, compiled):
        plain = trained()
        model = whole(plain)
        for batch, length, padded in shapes:
            some = tokens(batch, length)
            if padded:
                some[0, length // 2 :] = PADDING
            score = model(some, torch.linspace(0.1, 3, batch), padded)
            score[some != PADDING].square().mean().backward()
            answers.append([score.detach(), *(each.grad for each in plain.parameters())])
            plain.zero_grad(set_to_none=True)
    for eager, found in zip(answers[: len(shapes)], answers[len(shapes) :], strict=True):
        torch.testing.assert_close(found, eager, rtol=1e-3, atol=1e-4)


def test_a_new_block_changes_nothing() -> None:
    """So that deep networks begin to learn (Peebles and Xie, section 3.2: adaLN-Zero)."""
    x, turns = torch.randn(2, 6, 32), rotations(6, 8, torch.device("cpu"))
    assert Block(SHAPE)(x, torch.randn(2, 16), turns, None).equal(x)


def test_dropout_is_of_training_alone() -> None:
    model, some = trained(SHAPE._replace(dropout=0.5)), tokens(2, 6)
    assert model(some, SIGMA).equal(trained()(some, SIGMA))
    model.train()
    assert not model(some, SIGMA).equal(model(some, SIGMA))


def test_every_parameter_is_used() -> None:
    """DistributedDataParallel waits for those that are not; and the first step leaves zero."""
    model = trained()
    model(tokens(2, 6), SIGMA).square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in model.parameters())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_gives_a_score_in_single(kind: torch.dtype) -> None:
    model = trained()
    with torch.autocast("cpu", kind):
        half = model(tokens(2, 6), SIGMA)
    assert half.dtype == torch.float32
    single = model(tokens(2, 6), SIGMA)
    assert not half.equal(single)
    torch.testing.assert_close(half, single, atol=0.2, rtol=0.1)


@pytest.mark.parametrize(("size", "millions"), [("tiny", 0.3), ("mini", 6.0), ("small", 92.4)])
def test_sizes(size: Any, millions: float) -> None:
    with torch.device("meta"):
        model = DiffusionTransformer(shape_of(Model(size=size)), scale_by_sigma=True)
    assert sum(each.numel() for each in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_given_fields_override_the_size() -> None:
    shape = shape_of(Model(size="mini", hidden_size=128, dropout=0.0))
    assert shape == SIZES["mini"]._replace(hidden_size=128, dropout=0.0)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match=r"model.n_heads: is 6, but model.hidden_size, which is 64, .*: 96"):
        shape_of(Model(n_heads=6))
