"""Direct preference optimisation: log-probabilities of sequences, and the losses from them.

All is computed in float32 or better, whatever the network's precision.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, logsigmoid, relu

from castoff.trainers.dpo.settings import Preference

CHOSEN, REJECTED = 0, 1
"""Indices of a pair's sequences."""
CHOSEN_TO_REFERENCE = "logps/chosen_to_reference"


def _exact(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_probabilities(logits: Tensor, sequences: Tensor, designed: Tensor, temperature: float) -> Tensor:
    """The log-probabilities (batch, sequences) of sequences (batch, sequences, length), summed over the
    designed residues (batch, length).

    `logits`: (batch, sequences, length, residues).
    """
    log_p = log_softmax(_exact(logits) / temperature, dim=-1)
    of_sequences = log_p.gather(-1, sequences.unsqueeze(-1)).squeeze(-1)
    return of_sequences.masked_fill(~designed.unsqueeze(1), 0.0).sum(-1)


def entropy(logits: Tensor, designed: Tensor, temperature: float) -> Tensor:
    """The entropy of the network's predictions for designed residues, in nats per residue: (batch,).

    A mean over a pair's sequences, each of which is one context for a residue.
    """
    log_p = log_softmax(_exact(logits) / temperature, dim=-1)
    of_residues = -(log_p.exp() * log_p).sum(-1).masked_fill(~designed.unsqueeze(1), 0.0)
    return of_residues.sum(-1).mean(1) / designed.sum(-1).clamp(min=1)


def preference_loss(policy: Tensor, reference: Tensor, residues: Tensor, preference: Preference) -> Tensor:
    """The loss of each pair (batch,), from log-probabilities (batch, 2) of its sequences, the chosen one
    first.

    `residues` (batch,): numbers of designed residues. With h = β (Δ of chosen - Δ of rejected), where Δ is
    the policy's log-probability minus the reference's, and ε the label smoothing:

    - sigmoid: -(1 - ε) log σ(h) - ε log σ(-h); Rafailov et al., arXiv 2305.18290, and with ε Mitchell's
      "conservative DPO" (2023).
    - robust: (-(1 - ε) log σ(h) + ε log σ(-h)) / (1 - 2ε); Chowdhury et al., arXiv 2403.00409. If a share
      ε of the pairs is in the wrong order, its mean is that of unsmoothed sigmoid with all in right order.
    - hinge: max(0, 1 - h); Zhao et al., arXiv 2305.10425.
    - ipo: (h / β - 1 / 2β)², with h from means over residues; Azar et al., arXiv 2310.12036.
    """
    ratios = policy - reference
    if preference.loss == "ipo":
        ratios = ratios / residues.clamp(min=1).unsqueeze(1)
    difference = ratios[:, CHOSEN] - ratios[:, REJECTED]
    if preference.loss == "ipo":
        return (difference - 1 / (2 * preference.beta)) ** 2
    h, share = preference.beta * difference, preference.label_smoothing
    if preference.loss == "hinge":
        return relu(1 - h)
    right, wrong = -logsigmoid(h), -logsigmoid(-h)
    if preference.loss == "robust":
        return ((1 - share) * right - share * wrong) / (1 - 2 * share)
    return (1 - share) * right + share * wrong


def metrics(policy: Tensor, reference: Tensor, beta: float) -> dict[str, Tensor]:
    """Metrics of each pair (batch,), under the names that TRL gives them.

    Args:
        policy: log-probabilities (batch, 2) of the chosen and the rejected sequences; `reference` likewise.
    """
    rewards = beta * (policy - reference).detach()
    chosen, rejected = rewards[:, CHOSEN], rewards[:, REJECTED]
    return {
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/accuracies": (chosen > rejected).to(chosen.dtype),  # if equal, neither is preferred
        "rewards/margins": chosen - rejected,
        "logps/chosen": policy[:, CHOSEN].detach(),
        "logps/rejected": policy[:, REJECTED].detach(),
    }


def smoothed_likelihood_loss(logits: Tensor, sequences: Tensor, designed: Tensor, share: float) -> Tensor:
    """The negative log-likelihood of the designed residues, summed over all of them.

    `share` of each target is spread evenly over all residues. Shapes are those of `log_probabilities`.
    """
    counted = designed.unsqueeze(1).expand_as(sequences)
    return cross_entropy(_exact(logits[counted]), sequences[counted], label_smoothing=share, reduction="sum")
