"""A structure's data: its residues, chain by chain, and their backbones."""

from __future__ import annotations

from typing import NamedTuple

import numpy
import numpy.typing

from castoff.trainers.dpo.alphabet import Tokens


class Structure(NamedTuple):
    """The requested chains of a file, one after the other."""

    atoms: numpy.typing.NDArray[numpy.float32]
    """(length, 4, 3), in Å: N, CA, C and O; 0 where a residue is not resolved."""
    resolved: numpy.typing.NDArray[numpy.bool_]
    """(length,): whether all four backbone atoms of a residue are known, at physically possible distances."""
    native: Tokens
    """(length,): the residue that the file has; UNKNOWN if it has none."""
    chains: numpy.typing.NDArray[numpy.int32]
    """(length,): the number of each residue's chain among `names`."""
    positions: numpy.typing.NDArray[numpy.int32]
    """(length,): the residue's number in its chain, from 0; residues that are not resolved are counted."""
    names: tuple[str, ...]
    """The chains' names."""
