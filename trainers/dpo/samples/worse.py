"""Which residues would be worse than those that a structure has: a crude guess from burial and likeness.

A substitution is guessed to be worse if two things hold: evolution seldom replaces the one residue by the
other (BLOSUM62; Henikoff and Henikoff, PNAS 89, 1992), and the new residue's hydropathy (Kyte and Doolittle,
J. Mol. Biol. 157, 1982) suits its depth in the protein less. The depth is measured by the number of
neighbours within 10 Å of the CB. No energy is computed, and nothing was measured.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy
import numpy.typing

from castoff.trainers.dpo.alphabet import RESIDUES

Numbers: TypeAlias = "numpy.typing.NDArray[numpy.float64]"
Mask: TypeAlias = "numpy.typing.NDArray[numpy.bool_]"

_ORDER = "ARNDCQEGHILKMFPSTWYV"
_LIKENESS = """
 4 -1 -2 -2  0 -1 -1  0 -2 -1 -1 -1 -1 -2 -1  1  0 -3 -2  0
-1  5  0 -2 -3  1  0 -2  0 -3 -2  2 -1 -3 -2 -1 -1 -3 -2 -3
-2  0  6  1 -3  0  0  0  1 -3 -3  0 -2 -3 -2  1  0 -4 -2 -3
-2 -2  1  6 -3  0  2 -1 -1 -3 -4 -1 -3 -3 -1  0 -1 -4 -3 -3
 0 -3 -3 -3  9 -3 -4 -3 -3 -1 -1 -3 -1 -2 -3 -1 -1 -2 -2 -1
-1  1  0  0 -3  5  2 -2  0 -3 -2  1  0 -3 -1  0 -1 -2 -1 -2
-1  0  0  2 -4  2  5 -2  0 -3 -3  1 -2 -3 -1  0 -1 -3 -2 -2
 0 -2  0 -1 -3 -2 -2  6 -2 -4 -4 -2 -3 -3 -2  0 -2 -2 -3 -3
-2  0  1 -1 -3  0  0 -2  8 -3 -3 -1 -2 -1 -2 -1 -2 -2  2 -3
-1 -3 -3 -3 -1 -3 -3 -4 -3  4  2 -3  1  0 -3 -2 -1 -3 -1  3
-1 -2 -3 -4 -1 -2 -3 -4 -3  2  4 -2  2  0 -3 -2 -1 -2 -1  1
-1  2  0 -1 -3  1  1 -2 -1 -3 -2  5 -1 -3 -1  0 -1 -3 -2 -2
-1 -1 -2 -3 -1  0 -2 -3 -2  1  2 -1  5  0 -2 -1 -1 -1 -1  1
-2 -3 -3 -3 -2 -3 -3 -3 -1  0  0 -3  0  6 -4 -2 -2  1  3 -1
-1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4  7 -1 -1 -4 -3 -2
 1 -1  1  0 -1  0  0  0 -1 -2 -2  0 -1 -2 -1  4  1 -3 -2 -2
 0 -1  0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1  1  5 -2 -2  0
-3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1  1 -4 -3 -2 11  2 -3
-2 -2 -2 -3 -2 -1 -2 -3  2 -1 -1 -2 -1  3 -3 -2 -2  2  7 -1
 0 -3 -3 -3 -1 -2 -2 -3 -3  3  1 -2  1 -1 -2 -2  0 -3 -1  4
"""
_PLACES = [_ORDER.index(letter) for letter in RESIDUES]

LIKENESS: Numbers = numpy.array(_LIKENESS.split(), numpy.float64).reshape(20, 20)[_PLACES][:, _PLACES]
"""BLOSUM62 scores, (20, 20), by tokens."""

HYDROPATHY: Numbers = numpy.array(
    [
        *(1.8, 2.5, -3.5, -3.5, 2.8, -0.4, -3.2, 4.5, -3.9, 3.8),
        *(1.9, -3.5, -1.6, -3.5, -4.5, -0.8, -0.7, 4.2, -0.9, -1.3),
    ]
)
"""Hydropathy of each amino acid (Kyte and Doolittle), by token."""

_NEAR = 10.0
"""Largest distance in Å between the CB of two neighbours."""
_BURIED, _EXPOSED = 24.0, 8.0
"""Numbers of neighbours: from the first on, a residue is fully buried; up to the second, fully exposed."""


def burial(atoms: numpy.typing.NDArray[numpy.float32], resolved: Mask) -> Numbers:
    """How deep each residue of atoms (length, 4, 3) lies in its chain, from 0 to 1; NaN if it is not
    resolved.

    CB are placed as in ideal residues (Dauparas et al., Science 378, 2022).
    """
    depth = numpy.full(len(atoms), numpy.nan)
    whole = atoms[resolved].astype(numpy.float64)
    from_n, to_c = whole[:, 1] - whole[:, 0], whole[:, 2] - whole[:, 1]
    across = numpy.cross(from_n, to_c)
    side = -0.58273431 * across + 0.56802827 * from_n - 0.54067466 * to_c + whole[:, 1]
    neighbours = numpy.array([(numpy.linalg.norm(side - point, axis=1) < _NEAR).sum() - 1 for point in side])
    depth[resolved] = numpy.clip((neighbours - _EXPOSED) / (_BURIED - _EXPOSED), 0.0, 1.0)
    return depth


def worse(native: numpy.typing.NDArray[numpy.uint8], depth: Numbers) -> Mask:
    """Which residues, (length, 20), are guessed to be worse than the native ones.

    Native residues and depths must be known. Dissimilar residues are worse if their hydropathy fits less: by
    at least one unit if the native residue is fully buried or exposed, and by more in between.
    """
    lost = HYDROPATHY[native][:, None] - HYDROPATHY[None, :]
    misfit = (2 * depth - 1)[:, None] * lost
    mask: Mask = (LIKENESS[native] < 0) & (misfit >= 1.0)
    return mask
