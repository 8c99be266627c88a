"""Letters of proteins as tokens."""

from __future__ import annotations

from typing import TypeAlias

import numpy
import numpy.typing

Tokens: TypeAlias = "numpy.typing.NDArray[numpy.uint8]"

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
"""The twenty amino acids, in the order of their tokens, 0 to 19."""

MASK = len(RESIDUES)
"""The state that absorbs the others."""

UNKNOWN = MASK + 1
"""A residue that nobody knows, or none of the twenty: a model sees it, and is not asked about it."""

PADDING = MASK + 2
"""What fills the shorter sequences of a batch."""

KINDS = MASK + 3
"""Number of different tokens."""

_TOKEN_OF = numpy.full(256, UNKNOWN, dtype=numpy.uint8)
_LETTER_OF = numpy.frombuffer(f"{RESIDUES}#X-".encode(), dtype=numpy.uint8)
for _token, _letter in enumerate(RESIDUES):
    _TOKEN_OF[[ord(_letter), ord(_letter.lower())]] = _token


def encode(letters: bytes) -> Tokens:
    """The tokens of a sequence of letters, of either case; any that is not an amino acid's is UNKNOWN."""
    tokens: Tokens = _TOKEN_OF[numpy.frombuffer(letters, dtype=numpy.uint8)]
    return tokens


def decode(tokens: numpy.typing.ArrayLike) -> str:
    """The letters of tokens; X is unknown, # masked, - padding."""
    return bytes(_LETTER_OF[numpy.asarray(tokens, dtype=numpy.intp)]).decode()
