"""Settings of generated causal sets: `data.causets`."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import math
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from castoff.launcher.typed.suggestion import suggestion
from castoff.trainers.configuration.fields import convert
from castoff.trainers.configuration.section import NotNegative, Positive, Section

LARGEST = 20_000
"""Largest number of elements: a causal set is a matrix, and making one of this size takes about 10 GB."""

DESCRIPTIONS = {
    "sprinkled": "Manifold-like: a causal diamond in flat spacetime of 2 to 5 dimensions.",
    "region": "Manifold-like: a box, a cone or a round region in flat spacetime of 2 to 5 dimensions.",
    "curved": "Manifold-like: a diamond in de Sitter or anti-de Sitter space of 2 to 4 dimensions.",
    "cut": "Manifold-like: a diamond of 2 dimensions with one to three slits.",
    "merged": "Two sprinklings of different dimensions, or one and something else, with relations between "
    "them. The dimension of two sprinklings is the mean over their elements.",
    "layered": "Two to six layers, such as Kleitman-Rothschild orders.",
    "percolation": "Transitive percolation with the ordering fraction of a manifold-like set.",
    "destroyed": "A sprinkling with 5 to 25 % of its links removed and as many false relations added.",
    "lattice": "A planar lattice, or a cubic one of 3 dimensions.",
    "quasicrystal": "A quasicrystal in the plane.",
}
"""The kinds, and their descriptions in docs/."""

NAMES = tuple(DESCRIPTIONS)
"""Names of `kinds.KINDS`, in the order of their numbers."""

MIX = {
    **{"sprinkled": 4.0, "region": 4.0, "curved": 2.0, "cut": 1.0},
    **{"merged": 4.0, "percolation": 3.0, "destroyed": 2.0, "layered": 1.0, "lattice": 1.0},
    **{"quasicrystal": 0.5},
}

Elements = Annotated[int, msgspec.Meta(ge=8, le=LARGEST)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


class Causets(Section, frozen=True, kw_only=True):
    """Which causal sets are generated."""

    number: Positive = 6000
    """Sets for training, validation and test together."""
    size: tuple[Elements, Elements] = (32, 96)
    """The smallest and the largest number of elements."""
    kinds: dict[str, Weight] = msgspec.field(default_factory=lambda: dict(MIX))
    """The relative frequency of each kind; a kind that is not named is not generated."""
    seed: NotNegative | None = None
    """Seed of the sets; by default `training.seed`."""


def read(data: Any, path: str, problems: list[str]) -> Causets | None:
    """Read the section; None if it is wrong, and the reasons in `problems`."""
    before = len(problems)
    type_problems: list[str] = []
    settings: Causets | None = convert(data, Causets, path, type_problems)
    problems += type_problems
    if isinstance(data, Mapping):
        problems += _unlike(data, path)
    return settings if len(problems) == before else None


def _unlike(data: Mapping[str, Any], path: str) -> list[str]:
    """What is wrong with values of the right types."""
    problems = []
    size, kinds = data.get("size"), data.get("kinds")
    if isinstance(size, (list, tuple)) and len(size) == 2 and all(type(end) is int for end in size):
        low, high = size
        if low > high:
            problems.append(f"{path}.size: is {list(size)!r}, but takes the smaller number first")
    if isinstance(kinds, Mapping):
        problems += [
            f"{path}.kinds.{name}: there is no such kind{suggestion(name, NAMES)}"
            for name in kinds
            if name not in NAMES
        ]
        weights = [kind for kind in kinds.values() if isinstance(kind, (int, float))]
        if len(weights) == len(kinds) and not (0 < sum(weights) < math.inf):
            problems.append(f"{path}.kinds: is {dict(kinds)!r}, but at least one weight must be above 0")
    return problems
