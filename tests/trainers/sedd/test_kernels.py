from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from castoff.trainers.sedd.kernels import dropout, gelu


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_gelu_and_its_gradient_are_torchs(dtype: torch.dtype) -> None:
    found: list[Tensor] = []
    wanted: list[Tensor] = []
    for function, into in ((gelu, found), (partial(functional.gelu, approximate="tanh"), wanted)):
        x = torch.linspace(-12, 12, 4001, dtype=dtype, requires_grad=True)
        made = function(x)
        (gradient,) = torch.autograd.grad(made, x, torch.linspace(-1, 2, 4001, dtype=dtype))
        into += [made.detach(), gradient]
    error = {torch.float64: 2e-14, torch.float32: 5e-6, torch.bfloat16: 0.0}[dtype]
    torch.testing.assert_close(found, wanted, rtol=0, atol=error)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999999])
def test_dropout_leaves_its_share_and_the_mean(share: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(1001, 999, requires_grad=True)
    made = dropout(x, share, training=True)
    left = 1 - min(share, 65535 / 65536)
    count, spread = x.numel() * left, (x.numel() * left * (1 - left)) ** 0.5
    assert int(made.count_nonzero()) == pytest.approx(count, abs=5 * spread + x.numel() / 65536)
    assert made.detach().unique().tolist() == pytest.approx([0, 1 / left], rel=1e-3)
    (gradient,) = torch.autograd.grad(made.sum(), x)
    assert gradient.equal(made), "what is dropped gets no gradient"


def test_dropout_drops_each_number_for_itself() -> None:
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(4000, 64), 0.3, training=True) == 0).double()
    assert (torch.corrcoef(dropped.T) - torch.eye(64)).abs().max() < 0.1
    assert dropped.mean(0).sub(0.3).abs().max() < 0.05


def test_dropout_follows_the_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropout(torch.ones(7, 3, dtype=torch.float64), 0.5, training=True))
    assert drawn[0].equal(drawn[1]) and not drawn[0].equal(drawn[2])


@pytest.mark.parametrize(("share", "training"), [(0.5, False), (0.0, True)])
def test_without_dropout_nothing_is_drawn(share: float, training: bool) -> None:
    x, before = torch.randn(5, 3), torch.get_rng_state()
    assert dropout(x, share, training).equal(x)
    assert torch.get_rng_state().equal(before)
