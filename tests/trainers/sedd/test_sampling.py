"""Generation from scores that are known exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK, PADDING
from castoff.trainers.sedd.graph import GRAPHS, GraphOfStates
from castoff.trainers.sedd.loss import Score
from castoff.trainers.sedd.noise import Geometric, LogLinear, Noise
from castoff.trainers.sedd.sampling import _drawn, sampled
from castoff.trainers.sedd.settings import Sampling

WAYS = [
    ("absorb", "euler"),
    ("absorb", "analytic"),
    ("uniform", "euler"),
    ("uniform", "analytic"),
]
NOISE: dict[str, Noise] = {"absorb": LogLinear(), "uniform": Geometric()}


def exact(graph: GraphOfStates, kind: str, frequencies: Tensor) -> Score:
    """The score of independent residues with the frequencies (length, residues)."""

    def score(tokens: Tensor, sigma: Tensor) -> Tensor:
        kept = torch.exp(-sigma.double())[:, None, None]
        if kind == "absorb":
            return (frequencies[: tokens.shape[1]] * kept / (1 - kept)).log().expand(*tokens.shape, -1)
        noisy = kept * frequencies[: tokens.shape[1]] + (1 - kept) / graph.residues
        own = noisy.gather(-1, tokens.clamp(max=graph.residues - 1).unsqueeze(-1))
        return (noisy / own).log()

    return score


@pytest.mark.parametrize(("kind", "predictor"), WAYS)
def test_the_exact_score_of_one_protein_gives_that_protein(kind: str, predictor: Any) -> None:
    graph = GRAPHS[kind]()
    protein = torch.tensor([12, 0, 19, 3, 3, 7])
    point = torch.nn.functional.one_hot(protein, 20).double()
    lengths = torch.tensor([6, 4, 6])
    settings = Sampling(predictor=predictor, steps=60)
    tokens = sampled(exact(graph, kind, point), graph, NOISE[kind], settings, lengths)
    for row, length in zip(tokens, lengths.tolist(), strict=True):
        assert row.tolist() == [*protein[:length].tolist(), *[PADDING] * (6 - length)]


@pytest.mark.parametrize(("kind", "predictor"), WAYS)
def test_samples_have_the_frequencies_of_the_score(kind: str, predictor: Any) -> None:
    """The total variation of 40,000 residues is some 0.005 by chance alone."""
    graph = GRAPHS[kind](5)
    wanted = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01], dtype=torch.float64)
    score = exact(graph, kind, wanted.expand(100, 5))
    settings = Sampling(predictor=predictor, steps=150 if predictor == "euler" else 30)
    generator = torch.Generator().manual_seed(0)
    tokens = sampled(score, graph, NOISE[kind], settings, torch.full((400,), 100), generator)
    found = torch.bincount(tokens.flatten(), minlength=5) / tokens.numel()
    assert float((found - wanted).abs().sum()) / 2 < 0.015


@pytest.mark.parametrize(("kind", "predictor"), WAYS)
def test_the_same_seed_gives_the_same_proteins(kind: str, predictor: Any) -> None:
    graph = GRAPHS[kind]()
    score = exact(graph, kind, torch.full((8, 20), 0.05, dtype=torch.float64))
    settings, lengths = Sampling(predictor=predictor, steps=5), torch.tensor([8, 5])
    first, again, other = (
        sampled(score, graph, NOISE[kind], settings, lengths, torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    )
    assert first.equal(again) and not first.equal(other)


def test_the_last_step_leaves_no_mask() -> None:
    graph = GRAPHS["absorb"]()
    right = exact(graph, "absorb", torch.full((50, 20), 0.05, dtype=torch.float64))

    def score(tokens: Tensor, sigma: Tensor) -> Tensor:
        return right(tokens, sigma) - 0.5  # lower than it should be, so that some stay masked

    def masks(**fields: Any) -> int:
        settings = Sampling(predictor="euler", steps=2, **fields)
        return int((sampled(score, graph, LogLinear(), settings, torch.full((20,), 50)) == MASK).sum())

    assert masks(noise_removal=False) > 0
    assert masks(noise_removal=True) == 0


@pytest.mark.parametrize(("noise_removal", "calls"), [(False, 5), (True, 6)])
def test_it_takes_as_many_steps_as_are_asked_for(noise_removal: bool, calls: int) -> None:
    """Each asks for the score at the noise that is there before it, and keeps nothing for a gradient."""
    noise, seen = LogLinear(), []

    def score(tokens: Tensor, sigma: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        seen.append(float(sigma[0]))
        return torch.zeros(*tokens.shape, 20)

    settings = Sampling(steps=5, noise_removal=noise_removal)
    sampled(score, GRAPHS["absorb"](), noise, settings, torch.tensor([3]))
    assert seen == pytest.approx(noise.total(torch.linspace(1, 0, 6)).tolist()[:calls], abs=1e-4)


@pytest.mark.parametrize(
    ("chances", "number", "drawn"),
    [
        ([1 - 1e-10, 1e-10], 1 - 0.5e-10, 1),  # one that float32 could not tell from the other
        ([0.5, 0.5 - 1e-8], 1 - 1e-9, 1),  # what rounding has left out
        ([0.5, 0.4], 0.95, MASK),
    ],
)
def test_rare_residues_are_drawn_and_rounding_gives_no_mask(
    chances: list[float], number: float, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, *, dtype, **_: torch.full(shape, number, dtype=dtype))
    tokens = torch.tensor([[MASK, PADDING]])
    made = torch.tensor(chances, dtype=torch.float64).expand(1, 2, 2)
    assert _drawn(made, tokens, tokens == PADDING, None).tolist() == [[drawn, PADDING]]
