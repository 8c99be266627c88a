"""Each graph against the matrices of its chain."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from castoff.trainers.sedd.alphabet import MASK, PADDING, UNKNOWN
from castoff.trainers.sedd.graph import GRAPHS
from tests.trainers.sedd.chains import Joint, rates, token, transition

BOTH = pytest.mark.parametrize("kind", ["absorb", "uniform"])
LEVELS = pytest.mark.parametrize("sigma", [1e-3, 0.4, 3.0, 7.0])
RESIDUES = 5


def column(level: float) -> Tensor:
    return torch.full((1, 1), level, dtype=torch.float64)


@BOTH
@LEVELS
def test_noise_is_that_of_the_chain(kind: str, sigma: float) -> None:
    uniform = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    step = transition(kind, RESIDUES, sigma)
    for residue in range(RESIDUES):
        clean = torch.full((1, len(uniform)), residue)
        noisy = GRAPHS[kind](RESIDUES).corrupted(clean, column(sigma), uniform[None])
        for state in range(len(step)):
            share = float((noisy == token(state, RESIDUES)).double().mean())
            assert share == pytest.approx(float(step[state, residue]), abs=2e-5)


@BOTH
def test_special_tokens_meet_no_noise(kind: str) -> None:
    tokens = torch.tensor([[UNKNOWN, PADDING, MASK]])
    graph = GRAPHS[kind]()
    assert graph.corrupted(tokens, torch.full((1, 1), 20.0), torch.zeros(1, 3)).equal(tokens)
    entropy = graph.score_entropy(torch.randn(1, 3, 20), torch.ones(1, 1), tokens, tokens)
    assert entropy.tolist() == [[0, 0, 0]]


def dense(kind: str, log_score: Tensor, sigma: float, noisy: int, clean: int) -> float:
    """The definition, a sum over all other states."""
    step, rate = transition(kind, RESIDUES, sigma), rates(kind, RESIDUES)
    total = 0.0
    for other in range(len(rate)):
        if other == noisy or not rate[noisy, other]:
            continue
        ratio = step[other, clean] / step[noisy, clean]
        constant = ratio * (ratio.log() - 1) if ratio > 0 else torch.tensor(0.0)
        score = log_score[other]
        total += float(rate[noisy, other] * (score.exp() - ratio * score + constant))
    return total


@BOTH
@LEVELS
def test_score_entropy_is_its_definition(kind: str, sigma: float) -> None:
    graph = GRAPHS[kind](RESIDUES)
    log_score = torch.randn(RESIDUES, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for clean in range(RESIDUES):
        for noisy in range(RESIDUES + (kind == "absorb")):
            if kind == "absorb" and noisy not in (clean, RESIDUES):
                continue  # no noise leads there
            mine = graph.score_entropy(
                log_score[None, None],
                column(sigma),
                torch.tensor([[token(noisy, RESIDUES)]]),
                torch.tensor([[clean]]),
            )
            assert float(mine) == pytest.approx(dense(kind, log_score, sigma, noisy, clean), rel=1e-9)


@BOTH
@LEVELS
def test_it_is_zero_for_the_exact_score_and_above_for_others(kind: str, sigma: float) -> None:
    graph = GRAPHS[kind](RESIDUES)
    step = transition(kind, RESIDUES, sigma)
    noisy, clean = (MASK if kind == "absorb" else 1), 3
    row = RESIDUES if kind == "absorb" else 1
    exact = (step[:RESIDUES, clean] / step[row, clean]).clamp(min=1e-300).log()
    arguments = column(sigma), torch.tensor([[noisy]]), torch.tensor([[clean]])
    assert float(graph.score_entropy(exact[None, None], *arguments)) == pytest.approx(0, abs=1e-9)
    for seed in range(20):
        other = exact + torch.randn(RESIDUES, generator=torch.Generator().manual_seed(seed))
        assert float(graph.score_entropy(other[None, None], *arguments)) > 0


@BOTH
@pytest.mark.parametrize("step", [0.01, 0.5, 2.0])
def test_steps_back_are_probabilities(kind: str, step: float) -> None:
    graph = GRAPHS[kind](RESIDUES)
    log_score = torch.randn(1, 7, RESIDUES, dtype=torch.float64)
    tokens = torch.tensor([[0, 1, 2, 3, 4, 0, MASK if kind == "absorb" else 2]])
    for made in (
        graph.euler(log_score, tokens, column(step)),
        graph.analytic(log_score, tokens, column(step)),
        graph.denoised(log_score, tokens, column(step)),
    ):
        total = made.sum(-1)
        assert (made >= 0).all() and (total <= 1 + 1e-9).all()
        certain = total if kind == "uniform" else total[:, :-1]
        torch.testing.assert_close(certain, torch.ones_like(certain))


@BOTH
@pytest.mark.parametrize(("sigma", "step"), [(0.3, 0.1), (2.0, 1.9), (6.0, 0.5), (1.0, 1.0)])
def test_an_analytic_step_of_the_exact_score_undoes_the_noise(kind: str, sigma: float, step: float) -> None:
    """Of one position; from the distribution at sigma it leads to that at sigma - step."""
    residue = Joint(kind, RESIDUES, 1)
    scores, now = residue.log_score(sigma), residue.noisy(sigma)
    graph = GRAPHS[kind](RESIDUES)
    before = torch.zeros(RESIDUES, dtype=torch.float64)
    for state, chance in now.items():
        tokens = torch.tensor([[token(state[0], RESIDUES)]])
        before += chance * graph.analytic(scores[state][None], tokens, column(step))[0, 0]
    wanted = [residue.noisy(sigma - step)[(number,)] for number in range(RESIDUES)]
    torch.testing.assert_close(before, torch.tensor(wanted, dtype=torch.float64))


@BOTH
def test_a_short_euler_step_is_nearly_the_analytic_one(kind: str) -> None:
    graph = GRAPHS[kind](RESIDUES)
    residue, sigma, step = Joint(kind, RESIDUES, 1), 1.5, 1e-4
    for state, score in residue.log_score(sigma).items():
        tokens = torch.tensor([[token(state[0], RESIDUES)]])
        torch.testing.assert_close(
            graph.euler(score[None], tokens, column(step)),
            graph.analytic(score[None], tokens, column(step)),
            atol=1e-7,
            rtol=1e-3,
        )


@BOTH
@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 20.0, 100.0, 1000.0])
def test_single_precision_is_enough_under_any_noise(kind: str, sigma: float) -> None:
    """The exponential of 100 is not a number of single precision."""
    graph = GRAPHS[kind](RESIDUES)
    log_score = torch.randn(1, 4, RESIDUES, dtype=torch.float64)
    clean = torch.tensor([[0, 1, 2, UNKNOWN]])
    noisy = (
        torch.tensor([[MASK, MASK, 2, UNKNOWN]]) if kind == "absorb" else torch.tensor([[0, 2, 2, UNKNOWN]])
    )
    wanted = graph.score_entropy(log_score, column(sigma), noisy, clean)
    assert wanted.isfinite().all() and (wanted >= 0).all()
    single = log_score.float().requires_grad_()
    found = graph.score_entropy(single, column(sigma).float(), noisy, clean)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert single.grad is not None and single.grad.isfinite().all()


@BOTH
def test_a_score_that_nothing_teaches_may_be_of_any_size(kind: str) -> None:
    """That of a residue that is not masked, or of none: infinity times 0 would be no gradient."""
    log_score = torch.zeros(1, 3, 20)
    clean = torch.tensor([[4, UNKNOWN, PADDING]])
    noisy = clean.clone()
    if kind == "absorb":
        noisy[0, 0] = MASK
    log_score[0, 1:] = 1000.0
    log_score.requires_grad_()
    GRAPHS[kind]().score_entropy(log_score, torch.ones(1, 1), noisy, clean).sum().backward()
    assert log_score.grad is not None and log_score.grad.isfinite().all()
    assert log_score.grad[0, 0].any() and not log_score.grad[0, 1:].any()


@BOTH
@pytest.mark.parametrize("step", [20.0, 100.0])
def test_a_long_analytic_step_forgets_all_but_the_score(kind: str, step: float) -> None:
    """Not its digits: of a score that knows nothing, no residue is drawn more often than others."""
    graph, tokens = GRAPHS[kind](20), torch.full((1, 2), MASK if kind == "absorb" else 3)
    log_score = torch.zeros(1, 2, 20)
    if kind == "absorb":
        log_score -= step + torch.tensor(20.0).log()
    made = graph.analytic(log_score, tokens, torch.full((1, 1), step))
    torch.testing.assert_close(made, torch.full_like(made, 1 / 20), rtol=1e-4, atol=1e-6)


def test_the_score_of_the_present_token_changes_nothing() -> None:
    """On the uniform graph: its score is 1, and nobody has taught a model to say so."""
    graph = GRAPHS["uniform"](RESIDUES)
    tokens, clean = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 2, 2, 1]])
    score = torch.randn(1, 4, RESIDUES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = score.scatter(-1, tokens.unsqueeze(-1), 3.0)
    step = column(0.5)
    for act in (graph.euler, graph.analytic, graph.denoised):
        torch.testing.assert_close(act(score, tokens, step), act(other, tokens, step))
    torch.testing.assert_close(
        graph.score_entropy(score, step, tokens, clean), graph.score_entropy(other, step, tokens, clean)
    )
