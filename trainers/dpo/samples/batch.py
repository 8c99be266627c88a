"""The network's input: backbones, sequences for them, and the decoding order."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Backbones(NamedTuple):
    """Structures side by side, the shorter ones padded with residues that are not resolved."""

    atoms: Tensor
    """(batch, length, 4, 3), float32, in Å: N, CA, C and O of each residue; 0 where it is not resolved."""
    resolved: Tensor
    """(batch, length), bool: all four atoms are known."""
    chains: Tensor
    """(batch, length), int64: the number of its chain in the structure."""
    positions: Tensor
    """(batch, length), int64: its number in its chain; residues that a file leaves out are counted."""


class Sample(NamedTuple):
    """A structure and sequences for it: of a pair the chosen and the rejected one, else its own."""

    atoms: Tensor
    """(length, 4, 3), float32, as in `Backbones`; the others, too."""
    resolved: Tensor
    chains: Tensor
    positions: Tensor
    sequences: Tensor
    """(sequences, length), int64; what is not designed is the structure's own residue in each of them."""
    designed: Tensor
    """(length,), bool: residues whose log-probability counts; only resolved residues are among them."""
    order: Tensor
    """(length,), int64: each residue's place in the order of decoding, from 0; designed ones come last, and
    before them what is known of the structure."""
    reference: Tensor
    """(sequences,), float32: the reference's log-probability of each; 0 where there is no reference."""


class Batch(NamedTuple):
    """Samples side by side."""

    backbones: Backbones
    sequences: Tensor
    """(batch, sequences, length), int64."""
    designed: Tensor
    """(batch, length), bool."""
    order: Tensor
    """(batch, length), int64; padding has the last places."""
    reference: Tensor
    """(batch, sequences), float32."""
