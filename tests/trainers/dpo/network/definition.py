"""The network by its formulas, residue by residue in float64: what the fast one is compared with.

Its numbers were compared with those of the public code of ProteinMPNN, too, on the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy
import numpy.typing
from torch import Tensor

from castoff.trainers.dpo.samples.batch import Backbones

Numbers = numpy.typing.NDArray[numpy.float64]

CENTRES = [2 + 20 * number / 15 for number in range(16)]
PAIRS = [
    pair.split("-")
    for line in (
        "CA-CA N-N C-C O-O CB-CB",
        "CA-N CA-C CA-O CA-CB N-C N-O N-CB CB-C CB-O O-C",
        "N-CA C-CA O-CA CB-CA C-N O-N CB-N C-CB O-CB C-O",
    )
    for pair in line.split()
]


class Definition:
    """One structure, without padding, and one sequence."""

    def __init__(self, weights: Mapping[str, Tensor], layers: tuple[int, int], neighbours: int):
        self.weights = {name: value.double().numpy() for name, value in weights.items()}
        self.layers = layers
        self.neighbours = neighbours

    def log_probabilities(self, backbones: Backbones, sequence: Tensor, order: Tensor) -> Numbers:
        """(length, residues), for the first structure; `sequence` and `order` are (length,)."""
        resolved = [index for index, known in enumerate(backbones.resolved[0].tolist()) if known]
        atoms = {index: five_atoms(backbones.atoms[0, index].double().numpy()) for index in resolved}
        near = {
            i: sorted(resolved, key=lambda j: math.dist(atoms[i]["CA"], atoms[j]["CA"]))[: self.neighbours]
            for i in resolved
        }
        edges = {
            (i, j): self.layer("W_e", self.edge(atoms, backbones, i, j)) for i in resolved for j in near[i]
        }
        width = len(self.weights["W_s.weight"][0])
        nodes = {i: numpy.zeros(width) for i in resolved}
        for number in range(self.layers[0]):
            name = f"encoder_layers.{number}."
            nodes = {
                i: self.updated(name, nodes[i], [[nodes[i], edges[i, j], nodes[j]] for j in near[i]])
                for i in resolved
            }
            edges = {
                (i, j): self.norm(
                    name + "norm3",
                    edges[i, j] + self.message(name, "W11 W12 W13", [nodes[i], edges[i, j], nodes[j]]),
                )
                for i, j in edges
            }
        encoded, silence = nodes, numpy.zeros(width)
        for number in range(self.layers[1]):
            parts = {
                (i, j): [edges[i, j], self.weights["W_s.weight"][int(sequence[j])], nodes[j]]
                if order[j] < order[i]
                else [edges[i, j], silence, encoded[j]]
                for i, j in edges
            }
            nodes = {
                i: self.updated(
                    f"decoder_layers.{number}.", nodes[i], [[nodes[i], *parts[i, j]] for j in near[i]]
                )
                for i in resolved
            }
        logits = numpy.stack(
            [self.layer("W_out", nodes.get(i, silence)) for i in range(len(backbones.resolved[0]))]
        )
        normed: Numbers = logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))
        return normed

    def edge(
        self, atoms: Mapping[int, Mapping[str, Numbers]], backbones: Backbones, i: int, j: int
    ) -> Numbers:
        apart = int(backbones.positions[0, i] - backbones.positions[0, j])
        together = bool(backbones.chains[0, i] == backbones.chains[0, j])
        kind = min(max(apart + 32, 0), 64) if together else 65
        position = self.weights["features.embeddings.linear.weight"][:, kind]
        basis = [
            math.exp(-(((length - centre) / 1.25) ** 2))
            for first, second in PAIRS
            for length in [math.sqrt(((atoms[i][first] - atoms[j][second]) ** 2).sum() + 1e-6)]
            for centre in CENTRES
        ]
        given = [position + self.weights["features.embeddings.linear.bias"], basis]
        return self.norm(
            "features.norm_edges", self.weights["features.edge_embedding.weight"] @ numpy.concatenate(given)
        )

    def updated(self, name: str, node: Numbers, parts: list[list[Numbers]]) -> Numbers:
        node = self.norm(
            name + "norm1", node + sum(self.message(name, "W1 W2 W3", each) for each in parts) / 30
        )
        wide = gelu(self.layer(name + "dense.W_in", node))
        return self.norm(name + "norm2", node + self.layer(name + "dense.W_out", wide))

    def message(self, name: str, layers: str, parts: list[Numbers]) -> Numbers:
        first, second, third = (name + layer for layer in layers.split())
        hidden = gelu(self.layer(second, gelu(self.layer(first, numpy.concatenate(parts)))))
        return self.layer(third, hidden)

    def layer(self, name: str, values: Numbers) -> Numbers:
        out: Numbers = self.weights[name + ".weight"] @ values + self.weights[name + ".bias"]
        return out

    def norm(self, name: str, values: Numbers) -> Numbers:
        centred = values - values.mean()
        scaled: Numbers = centred / math.sqrt((centred**2).mean() + 1e-5)
        out: Numbers = scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]
        return out


def five_atoms(atoms: Numbers) -> dict[str, Numbers]:
    nitrogen, alpha, carbon, oxygen = atoms
    b, c = alpha - nitrogen, carbon - alpha
    beta = -0.58273431 * numpy.cross(b, c) + 0.56802827 * b - 0.54067466 * c + alpha
    return {"N": nitrogen, "CA": alpha, "C": carbon, "O": oxygen, "CB": beta}


def gelu(values: Numbers) -> Numbers:
    return numpy.array([value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in values])
