"""What a network's weights look like."""

from __future__ import annotations

from torch import nn


def weight_norms(model: nn.Module) -> dict[str, float]:
    """The norm of all weights of each part of a network, by the part's name."""
    found = {}
    for name, part in model.named_children():
        weights = [weight.detach().float() for weight in part.parameters()]
        if weights:
            found[name] = float(nn.utils.get_total_norm(weights))
    return found
