"""Noise schedules: total noise at a time from 0 to 1, and its rate.

Total noise sigma(t) is the integral of the rate: no noise has reached a token with probability exp(-sigma).
The log-linear and geometric schedules are Lou, Meng and Ermon's (arXiv 2310.16834, section 5.1 and appendix
C).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.settings import Graph, NoiseSchedule

LEAST_REACHED = 0.99
"""The share of residues that noise must have reached by time 1, because generation starts from pure noise."""


class Noise(ABC):
    """A noise schedule. Times may have any shape; the results have the same."""

    @abstractmethod
    def total(self, time: Tensor) -> Tensor:
        """Total noise sigma(t): 0 at time 0, or nearly so."""

    @abstractmethod
    def rate(self, time: Tensor) -> Tensor:
        """The derivative of `total`."""


class LogLinear(Noise):
    """exp(-sigma) falls linearly from 1 to eps."""

    def __init__(self, eps: float = 1e-3):
        self.eps = eps

    def total(self, time: Tensor) -> Tensor:
        """-log(1 - (1 - eps) t)."""
        # Each formula is accurate in single precision where the other is not.
        early, late = torch.log1p(-(1 - self.eps) * time), self._left(time).log()
        return -torch.where(time < 0.5, early, late)

    def rate(self, time: Tensor) -> Tensor:
        """(1 - eps) / (1 - (1 - eps) t)."""
        return (1 - self.eps) / self._left(time)

    def _left(self, time: Tensor) -> Tensor:
        return (1 - time) + self.eps * time


class Geometric(Noise):
    """log(sigma) rises linearly."""

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
    """sigma rises like half a cosine wave: slowly at both ends."""

    def __init__(self, lowest: float = 1e-4, highest: float = 20.0):
        self.lowest = lowest
        self.highest = highest

    def total(self, time: Tensor) -> Tensor:
        """highest + (lowest - highest) (1 + cos(pi t)) / 2."""
        # Written as a sum: at early times, the difference from `highest` would be all rounding.
        return self.lowest + (self.highest - self.lowest) * torch.sin(math.pi / 2 * time) ** 2

    def rate(self, time: Tensor) -> Tensor:
        """(highest - lowest) pi sin(pi t) / 2."""
        slope = torch.sin(math.pi * time).clamp(min=0)  # may be below 0 by rounding
        return (self.highest - self.lowest) * math.pi * slope / 2


def log_expm1(sigma: Tensor) -> Tensor:
    """log(exp(sigma) - 1), even if exp(sigma) overflows."""
    return sigma + torch.log(-torch.expm1(-sigma))


def noise_of(settings: NoiseSchedule, graph: Graph) -> Noise:
    """The schedule that the settings name.

    Raises:
        ConfigError: its noise decreases, or has not reached enough residues at time 1.
    """
    problems = []
    if settings.type == "loglinear":
        schedule: Noise = LogLinear(settings.eps)
        field, remedy = f"noise.eps: is {settings.eps:g}", "write eps: 1e-3"
    else:
        schedule_class = Geometric if settings.type == "geometric" else Cosine
        schedule = schedule_class(settings.sigma_min, settings.sigma_max)
        field, remedy = f"noise.sigma_max: is {settings.sigma_max:g}", "write sigma_max: 20"
        if settings.sigma_min >= settings.sigma_max:
            problems.append(
                f"noise.sigma_min: is {settings.sigma_min:g}, but noise grows from it to "
                f"noise.sigma_max, which is {settings.sigma_max:g}; write a smaller one, such as "
                "sigma_min: 1e-4"
            )
    reached = -math.expm1(-float(schedule.total(torch.tensor(1.0, dtype=torch.float64))))
    if reached < LEAST_REACHED:
        start = "all residues masked" if graph.type == "absorb" else "residues drawn uniformly"
        problems.append(
            f"{field}, so that at time 1 noise has reached {reached:.1%} of the residues, but generation "
            f"starts from {start}; at least {LEAST_REACHED:.0%} must be reached: {remedy}"
        )
    if problems:
        raise ConfigError(problems)
    return schedule
