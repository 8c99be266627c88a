"""The network's features of a structure: each residue's nearest neighbours, and their relative positions.

As in ProteinMPNN (Dauparas et al., Science 378, 2022): the distances between the backbone atoms of two
residues, and their distance along the chain. They do not change when the structure is rotated or shifted.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from castoff.trainers.dpo.samples.batch import Backbones

ATOMS = ("N", "CA", "C", "O", "CB")
"""A residue's atoms; the position of CB is computed, as in alanine."""

_BASIS = 16
"""Number of basis functions that encode a distance."""
_NEAREST, _FARTHEST = 2.0, 22.0
"""Centres of the first and the last basis function, in Å."""

_SAME = tuple((atom, atom) for atom in ("CA", "N", "C", "O", "CB"))
_DIFFERENT = (
    *(("CA", other) for other in ("N", "C", "O", "CB")),
    *(("N", other) for other in ("C", "O", "CB")),
    *(("CB", other) for other in ("C", "O")),
    ("O", "C"),
)
PAIRS = (*_SAME, *_DIFFERENT, *((second, first) for first, second in _DIFFERENT))
"""Pairs of an atom of a residue and one of its neighbour, in the order that the public weights expect."""

_FAR_IN_CHAIN = 32
"""Residues that are farther apart in their chain than this share a class."""
_OTHER_CHAIN = 2 * _FAR_IN_CHAIN + 1
"""The class of neighbours in another chain; lower classes are distances in the same chain."""

_TINY = 1e-6
"""Å², added to squared distances: the root of 0 has no gradient."""


class Features(nn.Module):
    """Maps backbones to each residue's neighbours, and to features of the edges between them.

    The parameters' names are those of the public weights.
    """

    def __init__(self, width: int, neighbours: int):
        super().__init__()
        self.neighbours = neighbours
        self.embeddings = RelativePositions(16)
        self.edge_embedding = nn.Linear(16 + _BASIS * len(PAIRS), width, bias=False)
        self.norm_edges = nn.LayerNorm(width)

    def forward(self, backbones: Backbones) -> tuple[Tensor, Tensor]:
        """Edges (batch, length, neighbours, width), and the neighbours' indices (batch, length, neighbours).

        If a structure has fewer resolved residues than `neighbours`, unresolved residues are listed, too.
        """
        # In float32, whatever the precision of the rest: bfloat16 resolves a distance of 20 Å to only 0.1 Å.
        with torch.autocast(backbones.atoms.device.type, enabled=False):
            backbone = torch.where(backbones.resolved[..., None, None], backbones.atoms.float(), 0.0)
            atoms = with_beta(backbone)
            nearest = nearest_residues(atoms[:, :, 1], backbones.resolved, self.neighbours)
            basis = in_basis(distances(atoms, nearest))
        positions = self.embeddings(backbones.positions, backbones.chains, nearest)
        edges = self.edge_embedding(torch.cat([positions, basis], dim=-1))
        normed: Tensor = self.norm_edges(edges)
        return normed, nearest


class RelativePositions(nn.Module):
    """The distance of two residues along their chain, as a vector. Residues of different chains have a
    vector, too.
    """

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(_OTHER_CHAIN + 1, width)

    def forward(self, positions: Tensor, chains: Tensor, nearest: Tensor) -> Tensor:
        """Map positions and chains (batch, length) to vectors (batch, length, neighbours, width)."""
        apart = positions.unsqueeze(-1) - residues(positions.unsqueeze(-1), nearest).squeeze(-1)
        together = chains.unsqueeze(-1) == residues(chains.unsqueeze(-1), nearest).squeeze(-1)
        kind = (apart + _FAR_IN_CHAIN).clamp(0, 2 * _FAR_IN_CHAIN)
        kind = torch.where(together, kind, _OTHER_CHAIN)
        return embedding(kind, self.linear.weight.T) + self.linear.bias


def with_beta(atoms: Tensor) -> Tensor:
    """Backbones (…, 4, 3) with the CB that an ideal residue would have: (…, 5, 3)."""
    nitrogen, alpha, carbon, _ = atoms.unbind(-2)
    first, second = alpha - nitrogen, carbon - alpha
    beta = -0.58273431 * torch.linalg.cross(first, second) + 0.56802827 * first - 0.54067466 * second + alpha
    return torch.cat([atoms, beta.unsqueeze(-2)], dim=-2)


@torch.no_grad()
def nearest_residues(alphas: Tensor, resolved: Tensor, number: int) -> Tensor:
    """Indices (batch, length, number) of the nearest residues by CA, nearest first, which is the residue
    itself.

    Residues that are not resolved come last. In a structure with fewer residues, all are listed.
    """
    apart = torch.cdist(alphas, alphas, compute_mode="donot_use_mm_for_euclid_dist")
    apart = apart.masked_fill(~resolved.unsqueeze(1), torch.inf)
    return apart.topk(min(number, alphas.shape[1]), dim=-1, largest=False).indices


def distances(atoms: Tensor, nearest: Tensor) -> Tensor:
    """Distances in Å (batch, length, neighbours, pairs) between a residue's atoms and its neighbours'."""
    others = residues(atoms.flatten(-2), nearest).unflatten(-1, atoms.shape[-2:])
    apart = atoms[:, :, None, :, None] - others[:, :, :, None, :]
    lengths = (apart.square().sum(-1) + _TINY).sqrt()
    return torch.stack(
        [lengths[..., ATOMS.index(first), ATOMS.index(second)] for first, second in PAIRS], dim=-1
    )


def in_basis(lengths: Tensor) -> Tensor:
    """Encode distances (…, pairs) by Gaussians around several centres: (…, pairs × centres)."""
    centres = torch.linspace(_NEAREST, _FARTHEST, _BASIS, device=lengths.device)
    width = (_FARTHEST - _NEAREST) / _BASIS
    return torch.exp(-(((lengths.unsqueeze(-1) - centres) / width) ** 2)).flatten(-2)


def residues(values: Tensor, which: Tensor) -> Tensor:
    """Select the residues `which` (batch, …) from values (batch, length, width)."""
    batch, length, width = values.shape
    first = torch.arange(0, batch * length, length, device=which.device)
    rows = which + first.view(-1, *(1,) * (which.dim() - 1))
    if not values.is_floating_point():
        return values.flatten(0, 1)[rows]
    # Unlike indexing, an embedding has the same gradient in every run, on an accelerator, too.
    return embedding(rows, values.reshape(batch * length, width))
