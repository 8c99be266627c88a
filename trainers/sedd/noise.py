"""Noise schedules: total noise at a time from 0 to 1, and its rate.

Total noise sigma(t) is the integral of the rate: a token has met none with probability exp(-sigma).
Log-linear and geometric are those of Lou, Meng and Ermon (arXiv 2310.16834, section 5.1 and appendix C).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.settings import Graph, NoiseSchedule

LEAST_REACHED = 0.99
"""So many residues must have met noise at time 1, for sampling begins where all have."""


class Noise(ABC):
    """A schedule; times are tensors of any shape, and so is what comes of them."""

    @abstractmethod
    def total(self, time: Tensor) -> Tensor:
        """sigma(t), from 0 or nearly so at time 0."""

    @abstractmethod
    def rate(self, time: Tensor) -> Tensor:
        """The derivative of `total`."""


class LogLinear(Noise):
    """exp(-sigma) falls in a straight line from 1 to eps."""

    def __init__(self, eps: float = 1e-3):
        self.eps = eps

    def total(self, time: Tensor) -> Tensor:
        """-log(1 - (1 - eps) t)."""
        # Each is exact in single precision where the other is not.
        early, late = torch.log1p(-(1 - self.eps) * time), self._left(time).log()
        return -torch.where(time < 0.5, early, late)

    def rate(self, time: Tensor) -> Tensor:
        """(1 - eps) / (1 - (1 - eps) t)."""
        return (1 - self.eps) / self._left(time)

    def _left(self, time: Tensor) -> Tensor:
        return (1 - time) + self.eps * time


class Geometric(Noise):
    """log(sigma) rises in a straight line."""

    def __init__(self, lowest: float = 1e-4, highest: float = 20.0):
        self.lowest = lowest
        self.highest = highest

    def total(self, time: Tensor) -> Tensor:
        """lowest^(1 - t) highest^t."""
        return self.lowest ** (1 - time) * self.highest**time

    def rate(self, time: Tensor) -> Tensor:
        """sigma log(highest / lowest)."""
        return self.total(time) * math.log(self.highest / self.lowest)


class Cosine(Noise):
    """sigma rises as half a cosine, slowly at both ends."""

    def __init__(self, lowest: float = 1e-4, highest: float = 20.0):
        self.lowest = lowest
        self.highest = highest

    def total(self, time: Tensor) -> Tensor:
        """highest + (lowest - highest) (1 + cos(pi t)) / 2."""
        # The same from below: at early times a difference from the highest would be rounding alone.
        return self.lowest + (self.highest - self.lowest) * torch.sin(math.pi / 2 * time) ** 2

    def rate(self, time: Tensor) -> Tensor:
        """(highest - lowest) pi sin(pi t) / 2."""
        slope = torch.sin(math.pi * time).clamp(min=0)  # pi is rounded
        return (self.highest - self.lowest) * math.pi * slope / 2


def log_expm1(sigma: Tensor) -> Tensor:
    """log(exp(sigma) - 1), also where exp(sigma) is more than a number can be."""
    return sigma + torch.log(-torch.expm1(-sigma))


def noise_of(settings: NoiseSchedule, graph: Graph) -> Noise:
    """The schedule that the settings name.

    Raises:
        ConfigError: its noise falls, or does not reach what sampling starts from.
    """
    problems = []
    if settings.type == "loglinear":
        made: Noise = LogLinear(settings.eps)
        field, remedy = f"noise.eps: is {settings.eps:g}", "write eps: 1e-3"
    else:
        kind = Geometric if settings.type == "geometric" else Cosine
        made = kind(settings.sigma_min, settings.sigma_max)
        field, remedy = f"noise.sigma_max: is {settings.sigma_max:g}", "write sigma_max: 20"
        if settings.sigma_min >= settings.sigma_max:
            problems.append(
                f"noise.sigma_min: is {settings.sigma_min:g}, but noise grows from it to noise.sigma_max, "
                f"which is {settings.sigma_max:g}; write a smaller one, as sigma_min: 1e-4"
            )
    reached = -math.expm1(-float(made.total(torch.tensor(1.0, dtype=torch.float64))))
    if reached < LEAST_REACHED:
        start = "all residues masked" if graph.type == "absorb" else "residues drawn uniformly"
        problems.append(
            f"{field}, so that at time 1 noise has reached {reached:.1%} of the residues, but generation "
            f"starts from {start}; at least {LEAST_REACHED:.0%} must be reached: {remedy}"
        )
    if problems:
        raise ConfigError(problems)
    return made
