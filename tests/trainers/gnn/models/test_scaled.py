"""Linear layers for numbers that are scaled before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.scaled import ScaledSequential


def test_numbers_are_scaled_first() -> None:
    layers = ScaledSequential([2, 3, 1], means=[1.0, 10.0], spreads=[2.0, 5.0])
    rows = torch.tensor([[3.0, 0.0], [1.0, 10.0]])
    scaled = torch.tensor([[1.0, -2.0], [0.0, 0.0]])
    assert torch.equal(layers(rows), layers.layers(scaled))
    assert {"means", "spreads"} < set(layers.state_dict())  # so an export has them


@pytest.mark.parametrize(
    ("means", "spreads", "problem"),
    [
        ([1.0], [1.0, 1.0], r"means: is \[1.0\], but takes 2 numbers, as many as the first layer takes"),
        ([1.0, 1.0], [1.0, 0.0], r"spreads: is \[1.0, 0.0\], but takes 2 numbers above 0"),
        ("ab", [1.0, 1.0], "means: is 'ab'"),
        ([1.0, True], None, r"means: is \[1.0, True\]"),
    ],
)
def test_scales_that_do_not_fit(means: Any, spreads: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ScaledSequential([2, 1], means, spreads)
