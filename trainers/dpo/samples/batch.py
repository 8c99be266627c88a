"""The network's input: backbones, sequences for them, and the decoding order."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Backbones(NamedTuple):
    """Structures as a batch, padded with residues that are not resolved."""

    atoms: Tensor
    """(batch, length, 4, 3), float32, in Å: N, CA, C and O of each residue; 0 where it is not resolved."""
    resolved: Tensor
    """(batch, length), bool: whether all four atoms are known."""
    chains: Tensor
    """(batch, length), int64: the number of the residue's chain in the structure."""
    positions: Tensor
    """(batch, length), int64: the residue's number in its chain; residues that the file lacks are counted."""


class Sample(NamedTuple):
    """A structure and its sequences: a pair's chosen and rejected one, or the structure's own."""

    atoms: Tensor
    """(length, 4, 3), float32, as in `Backbones`, like the next three."""
    resolved: Tensor
    chains: Tensor
    positions: Tensor
    sequences: Tensor
    """(sequences, length), int64; all have the structure's own residue where nothing is designed."""
    designed: Tensor
    """(length,), bool: residues whose log-probability counts. All of them are resolved."""
    order: Tensor
    """(length,), int64: each residue's rank in decoding, from 0; designed residues come after all others."""
    reference: Tensor
    """(sequences,), float32: the reference's log-probability of each sequence; 0 without a reference."""


class Batch(NamedTuple):
    """Samples as a batch, padded to one length."""

    backbones: Backbones
    sequences: Tensor
    """(batch, sequences, length), int64."""
    designed: Tensor
    """(batch, length), bool."""
    order: Tensor
    """(batch, length), int64; padding comes last."""
    reference: Tensor
    """(batch, sequences), float32."""
