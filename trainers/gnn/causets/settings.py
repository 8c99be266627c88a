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
"""Elements: a causal set is a matrix, and so many need some 10 GB while one is made."""

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
"""The kinds there are, and what docs/ says of each."""

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
    """Which causal sets are made."""

    number: Positive = 6000
    """Sets for training, validation and test together."""
    size: tuple[Elements, Elements] = (32, 96)
    """The smallest and the largest number of elements."""
    kinds: dict[str, Weight] = msgspec.field(default_factory=lambda: dict(MIX))
    """The relative frequency of each kind; a kind that is not named is not generated."""
    seed: NotNegative | None = None
    """Seed of the sets; by default `training.seed`."""


def read(data: Any, path: str, problems: list[str]) -> Causets | None:
    """The section from data; None, and what is wrong in words in `problems`, where it cannot be."""
    before = len(problems)
    found: list[str] = []
    settings: Causets | None = convert(data, Causets, path, found)
    problems += found
    if isinstance(data, Mapping):
        problems += _unlike(data, path)
    return settings if len(problems) == before else None


def _unlike(data: Mapping[str, Any], path: str) -> list[str]:
    """What is wrong beyond types."""
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
