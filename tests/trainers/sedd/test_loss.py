"""What the loss's mean comes to, where that is known."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK, UNKNOWN
from castoff.trainers.sedd.graph import GRAPHS
from castoff.trainers.sedd.loss import (
    EARLIEST,
    UnderNoise,
    diffusion_loss,
    reconstruction_loss,
    times,
    under_noise,
)
from castoff.trainers.sedd.noise import Geometric, LogLinear
from tests.trainers.sedd.chains import Joint, token


@pytest.mark.parametrize("residues", [2, 20])
@pytest.mark.parametrize("eps", [1e-3, 1e-5])
def test_the_best_score_that_knows_nothing_has_nearly_the_logarithm_of_the_residues(
    residues: int, eps: float
) -> None:
    """(1 - eps) log V, for uniform residues on the absorbing graph: the same at each time, in the mean."""

    def score(tokens: Tensor, sigma: Tensor) -> Tensor:
        one = -torch.log(torch.expm1(sigma) * residues)
        return one[:, None, None].expand(*tokens.shape, residues)

    number = 20_000
    uniform = ((torch.arange(number, dtype=torch.float64) + 0.5) / number).expand(3, number)
    clean = torch.randint(residues, (3, number), generator=torch.Generator().manual_seed(0))
    time = times(torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64))
    graph, noise = GRAPHS["absorb"](residues), LogLinear(eps)
    met = under_noise(score, graph, clean, noise.total(time), uniform)
    loss = diffusion_loss(graph, noise, clean, time, met)
    wanted = torch.full((3,), (1 - eps) * math.log(residues), dtype=torch.float64)
    torch.testing.assert_close(loss.mean(1), wanted, rtol=2e-3, atol=0)


@pytest.mark.parametrize(
    ("kind", "noise"), [("absorb", LogLinear(0.05)), ("uniform", Geometric(1e-2, 4.0))], ids=["a", "u"]
)
def test_the_exact_score_makes_of_the_bound_what_noise_has_taken(
    kind: str, noise: LogLinear | Geometric
) -> None:
    """Integrated from time 0 to 1 it is H(X_0 | X_1) - H(X_0 | X_0'), by brute force over all sequences."""
    joint = Joint(kind, residues=3, length=2)
    graph = GRAPHS[kind](3)
    points, weights = numpy.polynomial.legendre.leggauss(24)
    total = 0.0
    for time, weight in zip((points + 1) / 2, weights / 2, strict=True):
        at = torch.tensor([time], dtype=torch.float64)
        sigma = float(noise.total(at))
        scores = joint.log_score(sigma)
        for clean, chance in zip(joint.sequences, joint.probabilities, strict=True):
            for noisy, given in joint.given(clean, sigma).items():
                if given == 0:
                    continue
                entropy = graph.score_entropy(
                    scores[noisy][None],
                    torch.tensor([[sigma]], dtype=torch.float64),
                    torch.tensor([[token(state, 3) for state in noisy]]),
                    torch.tensor([clean]),
                )
                total += weight * chance * given * float(noise.rate(at)) * float(entropy.sum())
    ends = [float(noise.total(torch.tensor(end, dtype=torch.float64))) for end in (0.0, 1.0)]
    begun, ended = (joint.entropy_of_clean_given_noisy(sigma) for sigma in ends)
    assert total == pytest.approx(ended - begun, rel=1e-4)


def test_times_begin_late_enough_and_a_power_makes_them_early() -> None:
    uniform = torch.linspace(0, 1, 101)
    assert float(times(uniform).min()) == pytest.approx(EARLIEST)
    assert float(times(uniform).max()) == pytest.approx(1)
    assert (times(uniform, 3.0) <= times(uniform) + 1e-7).all()
    assert float(times(uniform, 3.0).mean()) == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("kind", ["absorb", "uniform"])
def test_tokens_stay_whole_numbers_and_gradients_finite_at_any_time(kind: str) -> None:
    seen = []
    raw = torch.randn(4, 9, 20, requires_grad=True)

    def score(tokens: Tensor, sigma: Tensor) -> Tensor:
        seen.append(tokens.dtype)
        return raw

    time = times(torch.tensor([0.0, 1e-6, 0.5, 0.9999999]))
    clean = torch.randint(23, (4, 9), generator=torch.Generator().manual_seed(3))
    graph, noise = GRAPHS[kind](), LogLinear()
    met = under_noise(score, graph, clean, noise.total(time), torch.rand(4, 9))
    loss = diffusion_loss(graph, noise, clean, time, met)
    loss.sum().backward()
    assert seen == [torch.int64]
    assert loss.isfinite().all() and (loss >= 0).all()
    assert raw.grad is not None and raw.grad.isfinite().all()


def test_reconstruction_is_of_what_noise_has_changed() -> None:
    clean = torch.tensor([[0, 1, 2, UNKNOWN]])
    chances = torch.tensor([0.5, 0.3, 0.2]).log().expand(1, 4, 3)
    met = UnderNoise(torch.ones(1, 1), torch.tensor([[MASK, 1, MASK, UNKNOWN]]), chances)
    total, count = reconstruction_loss(GRAPHS["absorb"](3), clean, met)
    assert float(total) == pytest.approx(-math.log(0.5 * 0.2)) and int(count) == 2


def test_reconstruction_of_the_exact_score_is_what_noise_leaves_to_guess() -> None:
    """On the uniform graph, of the moved residues of all pairs: the mean of -log P(clean | noisy)."""
    residue, sigma = Joint("uniform", 3, 1), 0.8
    graph, scores, marginal = GRAPHS["uniform"](3), residue.log_score(sigma), residue.noisy(sigma)
    for (clean,), chance in zip(residue.sequences, residue.probabilities, strict=True):
        for noisy, given in residue.given((clean,), sigma).items():
            level = torch.tensor([[sigma]], dtype=torch.float64)
            met = UnderNoise(level, torch.tensor([noisy]), scores[noisy][None])
            total, count = reconstruction_loss(graph, torch.tensor([[clean]]), met)
            wanted = -math.log(chance * given / marginal[noisy])
            assert int(count) == (noisy != (clean,))
            assert float(total) == pytest.approx(wanted * int(count))
