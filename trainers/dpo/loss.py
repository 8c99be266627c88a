"""Direct preference optimisation: log-probabilities of sequences, and the losses from them.

All of it in float32 or better, whatever precision the network computes in.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, logsigmoid, relu

from castoff.trainers.dpo.settings import Preference

CHOSEN, REJECTED = 0, 1
CHOSEN_TO_REFERENCE = "logps/chosen_to_reference"
"""Their places among a pair's sequences."""


def _exact(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_probabilities(logits: Tensor, sequences: Tensor, designed: Tensor, temperature: float) -> Tensor:
    """Of sequences (batch, sequences, length) at their designed residues (batch, length), each a sum.

    `logits` are (batch, sequences, length, residues).
    """
    each = log_softmax(_exact(logits) / temperature, dim=-1)
    own = each.gather(-1, sequences.unsqueeze(-1)).squeeze(-1)
    return own.masked_fill(~designed.unsqueeze(1), 0.0).sum(-1)


def entropy(logits: Tensor, designed: Tensor, temperature: float) -> Tensor:
    """Of what the network would put at the designed residues, in nats a residue: (batch,).

    A mean over a pair's sequences: each is one way to have come to a residue.
    """
    each = log_softmax(_exact(logits) / temperature, dim=-1)
    of_residues = -(each.exp() * each).sum(-1).masked_fill(~designed.unsqueeze(1), 0.0)
    return of_residues.sum(-1).mean(1) / designed.sum(-1).clamp(min=1)


def preference_loss(policy: Tensor, reference: Tensor, residues: Tensor, given: Preference) -> Tensor:
    """Of each pair (batch,), from log-probabilities (batch, 2) of its sequences, the chosen one first.

    `residues` (batch,) are designed ones. With h = β (Δ of chosen - Δ of rejected), where Δ is by how much
    the policy's log-probability exceeds the reference's, and ε the label smoothing:

    - sigmoid: -(1 - ε) log σ(h) - ε log σ(-h); Rafailov et al., arXiv 2305.18290, and with ε Mitchell's
      "conservative DPO" (2023).
    - robust: (-(1 - ε) log σ(h) + ε log σ(-h)) / (1 - 2ε); Chowdhury et al., arXiv 2403.00409. If a share
      ε of the pairs is the wrong way round, its mean is that of sigmoid, unsmoothed, over the right ones.
    - hinge: max(0, 1 - h); Zhao et al., arXiv 2305.10425.
    - ipo: (h / β - 1 / 2β)², h of means over residues; Azar et al., arXiv 2310.12036.
    """
    ratios = policy - reference
    if given.loss == "ipo":
        ratios = ratios / residues.clamp(min=1).unsqueeze(1)
    difference = ratios[:, CHOSEN] - ratios[:, REJECTED]
    if given.loss == "ipo":
        return (difference - 1 / (2 * given.beta)) ** 2
    h, share = given.beta * difference, given.label_smoothing
    if given.loss == "hinge":
        return relu(1 - h)
    right, wrong = -logsigmoid(h), -logsigmoid(-h)
    if given.loss == "robust":
        return ((1 - share) * right - share * wrong) / (1 - 2 * share)
    return (1 - share) * right + share * wrong


def metrics(policy: Tensor, reference: Tensor, beta: float) -> dict[str, Tensor]:
    """What is worth watching, of each pair (batch,), under the names that TRL gives it.

    Args:
        policy: log-probabilities (batch, 2) of chosen and rejected sequences; the reference's likewise.
    """
    rewards = beta * (policy - reference).detach()
    chosen, rejected = rewards[:, CHOSEN], rewards[:, REJECTED]
    return {
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/accuracies": (chosen > rejected).to(chosen.dtype),  # of two alike, neither is preferred
        "rewards/margins": chosen - rejected,
        "logps/chosen": policy[:, CHOSEN].detach(),
        "logps/rejected": policy[:, REJECTED].detach(),
    }


def smoothed_likelihood_loss(logits: Tensor, sequences: Tensor, designed: Tensor, share: float) -> Tensor:
    """The negative log-likelihood of the designed residues, summed over all of them.

    A share of what is to be predicted is spread evenly over all residues. Shapes as in `log_probabilities`.
    """
    counted = designed.unsqueeze(1).expand_as(sequences)
    return cross_entropy(_exact(logits[counted]), sequences[counted], label_smoothing=share, reduction="sum")
