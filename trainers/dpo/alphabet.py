"""Residues as tokens, in the order of ProteinMPNN's alphabet, so that its weights fit."""

from __future__ import annotations

from typing import TypeAlias

import numpy
import numpy.typing

Tokens: TypeAlias = "numpy.typing.NDArray[numpy.uint8]"

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
"""The twenty amino acids, in the order of their tokens, 0 to 19."""

UNKNOWN = len(RESIDUES)
"""X: a residue that is unknown or not among the twenty."""

KINDS = UNKNOWN + 1
"""Number of different tokens."""

LETTERS = RESIDUES + "X"
