"""Synthetic proteins: coiled coils, whose residues repeat in heptads."""

from __future__ import annotations

import numpy

from castoff.trainers.sedd.alphabet import Tokens, encode

LENGTHS = range(40, 121)
"""Lengths of proteins, in residues."""

_CORE, _SURFACE, _FLANK = "LLLLIIVVAM", "EEEKKKQQRRSNTDAH", "EEKKRRQDAAS"
_HEPTAD = [_CORE, _SURFACE, _SURFACE, _CORE, _FLANK, _SURFACE, _FLANK]
"""The letters to draw from at positions a to g of a heptad; a and d face the other helix."""


class SyntheticProteins:
    """`number` proteins, each a function of (seed, index): heptads, which turns interrupt."""

    def __init__(self, number: int, seed: int = 0):
        self.number = number
        self.seed = seed

    def __len__(self) -> int:
        """The number of proteins."""
        return self.number

    def __getitem__(self, index: int) -> Tokens:
        """The tokens of a protein."""
        if not 0 <= index < self.number:
            raise IndexError(index)
        generator = numpy.random.default_rng([self.seed, index])
        phase = int(generator.integers(7))
        letters = ["M"]
        for _ in range(int(generator.choice(LENGTHS)) - 1):
            if generator.random() < 0.03:  # a turn, after which the heptads begin anew
                letters.append(str(generator.choice(list("GP"))))
                phase = int(generator.integers(7))
                continue
            letters.append(str(generator.choice(list(_HEPTAD[phase]))))
            phase = (phase + 1) % 7
        return encode("".join(letters).encode())

    def length_of(self, index: int) -> int:
        """The number of residues of a protein."""
        return len(self[index])

    @property
    def digest(self) -> str:
        """The seed, as text. The number of proteins is left out: it is a setting of the task."""
        return f"made up from {self.seed}"
