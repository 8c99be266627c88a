"""The losses of preferences, against their papers' formulas."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from castoff.trainers.dpo.alphabet import KINDS
from castoff.trainers.dpo.loss import (
    entropy,
    log_probabilities,
    metrics,
    preference_loss,
    smoothed_likelihood_loss,
)
from castoff.trainers.dpo.settings import Preference

LOSSES: list[dict[str, Any]] = [
    {"loss": "sigmoid"},
    {"loss": "sigmoid", "label_smoothing": 0.1},
    {"loss": "robust", "label_smoothing": 0.1},
    {"loss": "hinge"},
    {"loss": "ipo"},
]


def log_probabilities_of_pairs(number: int = 50) -> tuple[Tensor, Tensor, Tensor]:
    """Of a policy and of a reference, and how many residues each is of."""
    generator = torch.Generator().manual_seed(0)
    residues = torch.randint(1, 200, (number,), generator=generator)
    one, other = (
        -residues.double().unsqueeze(1) * (1 + 2 * torch.rand(number, 2, generator=generator).double())
        for _ in range(2)
    )
    return one, other, residues


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"loss": "sigmoid"}, math.log(2)),
        ({"loss": "sigmoid", "label_smoothing": 0.2}, math.log(2)),
        ({"loss": "robust", "label_smoothing": 0.2}, math.log(2)),
        ({"loss": "hinge"}, 1.0),
        ({"loss": "ipo", "beta": 0.1}, 25.0),
        ({"loss": "ipo", "beta": 0.5}, 1.0),
    ],
)
def test_before_the_first_step(given: dict[str, Any], wanted: float) -> None:
    policy, _, residues = log_probabilities_of_pairs()
    loss = preference_loss(policy.float(), policy.float(), residues, Preference(**given))
    torch.testing.assert_close(loss, torch.full_like(loss, wanted), rtol=1e-6, atol=0)


@pytest.mark.parametrize("beta", [0.01, 0.1, 0.7])
@pytest.mark.parametrize("name", ["sigmoid", "robust", "hinge", "ipo"])
def test_as_published(name: Literal["sigmoid", "robust", "hinge", "ipo"], beta: float) -> None:
    """Without smoothing. Sigmoid is the logarithm of Bradley and Terry's probability."""
    policy, reference, residues = log_probabilities_of_pairs()
    policy = reference + (policy - reference) / 10  # where a probability is no 0
    losses = preference_loss(policy, reference, residues, Preference(loss=name, beta=beta))
    for loss, mine, theirs, length in zip(losses, policy, reference, residues, strict=True):
        better, worse = (math.exp(beta * float(mine[k] - theirs[k])) for k in (0, 1))
        if name in ("sigmoid", "robust"):
            wanted = -math.log(better / (better + worse))
        elif name == "hinge":
            wanted = max(0.0, 1 - math.log(better / worse))
        else:
            gap = float(mine[0] - mine[1] - theirs[0] + theirs[1]) / int(length)
            wanted = (gap - 0.5 / beta) ** 2
        assert float(loss) == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_sigmoid_with_smoothing_is_the_cross_entropy_with_uncertain_labels() -> None:
    policy, reference, residues = log_probabilities_of_pairs()
    given = Preference(beta=0.05, label_smoothing=0.15)
    margins = 0.05 * (policy - reference) @ torch.tensor([1.0, -1.0]).double()
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(
        margins, torch.full_like(margins, 0.85), reduction="none"
    )
    torch.testing.assert_close(preference_loss(policy, reference, residues, given), wanted)


def test_robust_is_unbiased() -> None:
    """With a share ε of the pairs the wrong way round, the mean is that of sigmoid on the right ones."""
    policy, reference, residues = log_probabilities_of_pairs()
    given = Preference(loss="robust", label_smoothing=0.3)
    right = preference_loss(policy, reference, residues, given)
    wrong = preference_loss(policy.flip(1), reference.flip(1), residues, given)
    wanted = preference_loss(policy, reference, residues, Preference())
    torch.testing.assert_close(0.7 * right + 0.3 * wrong, wanted)


def test_a_pair_the_other_way_round() -> None:
    policy, reference, residues = log_probabilities_of_pairs()
    one = metrics(policy, reference, 0.1)
    other = metrics(policy.flip(1), reference.flip(1), 0.1)
    torch.testing.assert_close(one["rewards/margins"], -other["rewards/margins"])
    given = Preference()
    difference = preference_loss(policy.flip(1), reference.flip(1), residues, given) - preference_loss(
        policy, reference, residues, given
    )
    torch.testing.assert_close(difference, one["rewards/margins"])  # -log σ(-h) + log σ(h) = h


def test_of_two_alike_neither_is_preferred() -> None:
    policy = torch.tensor([[-1.0, -2.0], [-2.0, -3.0], [-3.0, -1.0]])
    reference = torch.tensor([[-1.0, -2.0], [-3.0, -3.0], [-2.0, -1.0]])
    found = metrics(policy, reference, 0.5)
    assert found["rewards/accuracies"].tolist() == [0, 1, 0]
    assert found["rewards/chosen"].tolist() == [0, 0.5, -0.5]
    assert found["rewards/rejected"].tolist() == [0, 0, 0]
    assert found["logps/chosen"].tolist() == policy[:, 0].tolist()
    assert found["logps/rejected"].tolist() == policy[:, 1].tolist()


@pytest.mark.parametrize("stated", LOSSES)
def test_gradients(stated: dict[str, Any]) -> None:
    """As differences say, and of both sequences: the chosen one becomes likelier, the other less likely."""
    policy, reference, residues = log_probabilities_of_pairs(5)
    preference = Preference(**stated)
    policy = (reference + 0.02 * (policy - reference)).requires_grad_()
    torch.autograd.gradcheck(lambda given: preference_loss(given, reference, residues, preference), policy)
    (gradient,) = torch.autograd.grad(preference_loss(policy, reference, residues, preference).sum(), policy)
    assert bool((gradient[:, 0] < 0).all()) and bool((gradient[:, 1] > 0).all())


@pytest.mark.parametrize("given", LOSSES)
def test_sequences_far_from_the_reference(given: dict[str, Any]) -> None:
    """No infinity, and of a pair learned wrong a gradient that puts it right."""
    policy = torch.tensor([[-5e4, 0.0], [0.0, -5e4]], requires_grad=True)
    loss = preference_loss(policy, torch.zeros(2, 2), torch.ones(2, dtype=torch.int64), Preference(**given))
    (gradient,) = torch.autograd.grad(loss.sum(), policy)
    assert bool(torch.isfinite(loss).all()) and bool(torch.isfinite(gradient).all())
    assert gradient[0, 0] < 0 < gradient[0, 1]


def logits_of_sequences() -> tuple[Tensor, Tensor, Tensor]:
    """(2, 3, 7, KINDS), sequences, and which of the 7 residues are designed."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 3, 7, KINDS, generator=generator, dtype=torch.float64)
    sequences = torch.randint(KINDS, (2, 3, 7), generator=generator)
    return logits, sequences, torch.tensor([[1, 1, 0, 1, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1]]).bool()


def test_log_probabilities_are_of_designed_residues() -> None:
    logits, sequences, designed = logits_of_sequences()
    found = log_probabilities(logits, sequences, designed, 0.5)
    for pair in range(2):
        for which in range(3):
            own = 0.0
            for residue in designed[pair].nonzero().flatten().tolist():
                weights = [math.exp(2 * float(each)) for each in logits[pair, which, residue]]
                own += math.log(weights[int(sequences[pair, which, residue])] / sum(weights))
            assert float(found[pair, which]) == pytest.approx(own)
    changed = logits.masked_fill(~designed[:, None, :, None], 1e4)
    assert torch.equal(log_probabilities(changed, sequences, designed, 0.5), found)


def test_unlikely_residues_have_a_gradient() -> None:
    """7 below the best one at temperature 0.1: where probabilities end, log-probabilities do not."""
    logits = torch.full((1, 1, 1, KINDS), -100.0)
    logits[..., 0], logits[..., 1] = 0.0, -7.0
    logits.requires_grad_()
    found = log_probabilities(logits, torch.ones(1, 1, 1).long(), torch.ones(1, 1).bool(), 0.1)
    assert found.tolist() == [[pytest.approx(-70)]]
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    assert float(gradient[0, 0, 0, 1]) == pytest.approx(10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_for_the_network_alone(dtype: torch.dtype) -> None:
    logits, sequences, designed = logits_of_sequences()
    coarse = logits.to(dtype)
    with torch.autocast("cpu", dtype):
        found = log_probabilities(coarse, sequences, designed, 0.1)
        spread = entropy(coarse, designed, 0.1)
        likelihood = smoothed_likelihood_loss(coarse, sequences, designed, 0.1)
    assert {found.dtype, spread.dtype, likelihood.dtype} == {torch.float32}
    wanted = log_probabilities(coarse.double(), sequences, designed, 0.1)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=0)


def test_entropy() -> None:
    """That of the temperature, in nats a designed residue; the flatter, the more of it."""
    logits, _, designed = logits_of_sequences()
    flat = entropy(torch.zeros_like(logits), designed, 0.1)
    torch.testing.assert_close(flat, torch.full_like(flat, math.log(KINDS)))
    odds = torch.zeros(1, 2, 1, KINDS).double()
    odds[..., 2:] = -1e3
    odds[..., 0] = math.log(3)  # three to one
    wanted = math.log(4) - 0.75 * math.log(3)
    assert float(entropy(odds, torch.ones(1, 1).bool(), 1.0)) == pytest.approx(wanted)
    assert float(entropy(odds, torch.ones(1, 1).bool(), 0.5)) < wanted
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(entropy(logits, designed, 0.5).sum(), logits)
    assert bool((gradient.abs().sum(-1) > 0).eq(designed.unsqueeze(1)).all())
    torch.autograd.gradcheck(lambda given: entropy(given, designed, 0.5), logits)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_smoothed_likelihood(share: float) -> None:
    logits, sequences, designed = logits_of_sequences()
    wanted = 0.0
    for pair, which, residue in designed.unsqueeze(1).expand_as(sequences).nonzero().tolist():
        mine = torch.log_softmax(logits[pair, which, residue], 0)
        own = mine[sequences[pair, which, residue]]
        wanted -= float((1 - share) * own + share * mine.mean())
    assert float(smoothed_likelihood_loss(logits, sequences, designed, share)) == pytest.approx(wanted)
