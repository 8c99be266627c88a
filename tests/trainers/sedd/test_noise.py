from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.noise import Cosine, Geometric, LogLinear, Noise, log_expm1, noise_of
from castoff.trainers.sedd.settings import Graph, NoiseSchedule

SCHEDULES = [LogLinear(), Geometric(), Cosine(), LogLinear(0.01), Geometric(1e-3, 6.0)]


@pytest.mark.parametrize("noise", SCHEDULES)
def test_the_rate_is_the_derivative(noise: Noise) -> None:
    time = torch.linspace(0.01, 0.99, 33, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(noise.total(time).sum(), time)
    torch.testing.assert_close(noise.rate(time.detach()), slope)


def test_where_they_begin_and_end() -> None:
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(LogLinear(1e-3).total(ends), torch.tensor([0.0, -math.log(1e-3)]).double())
    for noise in (Geometric(1e-4, 20.0), Cosine(1e-4, 20.0)):
        torch.testing.assert_close(noise.total(ends), torch.tensor([1e-4, 20.0]).double())


@pytest.mark.parametrize("noise", [*SCHEDULES, LogLinear(1e-9), Cosine(1e-6), Geometric(1e-6, 100.0)])
def test_single_precision_is_enough_at_any_time(noise: Noise) -> None:
    """At the ends, too, where generation begins and ends."""
    time = torch.cat([torch.logspace(-6, -1, 40), torch.linspace(0, 1, 101), 1 - torch.logspace(-7, -1, 40)])
    torch.testing.assert_close(noise.total(time).double(), noise.total(time.double()), rtol=1e-5, atol=1e-12)
    torch.testing.assert_close(noise.rate(time).double(), noise.rate(time.double()), rtol=1e-5, atol=1e-5)
    assert (noise.rate(time) >= 0).all()


def test_the_growth_of_any_noise_has_a_logarithm() -> None:
    sigma = torch.tensor([1e-6, 0.1, 3.0, 50.0, 1000.0])
    wanted = [math.log(math.expm1(level)) for level in sigma.double().tolist()[:-1]]
    torch.testing.assert_close(log_expm1(sigma), torch.tensor([*wanted, 1000.0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["loglinear", "geometric", "cosine"])
@pytest.mark.parametrize("graph", ["absorb", "uniform"])
def test_the_defaults_do(kind: Any, graph: Any) -> None:
    noise_of(NoiseSchedule(type=kind), Graph(type=graph))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"type": "cosine", "sigma_max": 0.5}, "noise.sigma_max: is 0.5, .* reached 39.3%"),
        ({"type": "cosine", "sigma_max": 1.5}, "noise.sigma_max: is 1.5, .* reached 77.7%"),
        ({"type": "geometric", "sigma_max": 4.0}, "reached 98.2%"),
        ({"eps": 0.02}, "noise.eps: is 0.02, .* write eps: 1e-3"),
        ({"type": "geometric", "sigma_min": 30.0}, "noise.sigma_min: is 30, .* which is 20;"),
        ({"type": "geometric", "sigma_min": 20.0}, "noise.sigma_min: is 20, .* which is 20;"),
    ],
)
def test_sampling_starts_where_noise_ends(fields: dict[str, Any], says: str) -> None:
    """Else a sampler begins with sequences that training has never seen."""
    with pytest.raises(ConfigError, match=says):
        noise_of(NoiseSchedule(**fields), Graph())
