"""Letters of proteins as tokens."""

from __future__ import annotations

from typing import TypeAlias

import numpy
import numpy.typing

Tokens: TypeAlias = "numpy.typing.NDArray[numpy.uint8]"

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
"""The twenty amino acids, in the order of their tokens, 0 to 19."""

MASK = len(RESIDUES)
"""The token of a masked residue: the state that absorbs all others."""

UNKNOWN = MASK + 1
"""A residue that is unknown or not among the twenty: models see it, but it is left out of the loss."""

PADDING = MASK + 2
"""The token that fills up the shorter sequences of a batch."""

KINDS = MASK + 3
"""Number of different tokens."""

_TOKEN_OF = numpy.full(256, UNKNOWN, dtype=numpy.uint8)
_LETTER_OF = numpy.frombuffer(f"{RESIDUES}#X-".encode(), dtype=numpy.uint8)
for _token, _letter in enumerate(RESIDUES):
    _TOKEN_OF[[ord(_letter), ord(_letter.lower())]] = _token


def encode(letters: bytes) -> Tokens:
    """Convert letters of either case to tokens; any that is not one of the twenty becomes UNKNOWN."""
    tokens: Tokens = _TOKEN_OF[numpy.frombuffer(letters, dtype=numpy.uint8)]
    return tokens


def decode(tokens: numpy.typing.ArrayLike) -> str:
    """Convert tokens to letters: X for unknown, # for masked, - for padding."""
    return bytes(_LETTER_OF[numpy.asarray(tokens, dtype=numpy.intp)]).decode()
