"""A message-passing network that reads backbones and writes sequences for them, residue by residue.

Built like ProteinMPNN (Dauparas et al., Science 378, 2022), whose public weights fit: an encoder in which
residues and the edges to their neighbours exchange messages, and a decoder in which a residue also gets the
sequence of the neighbours that were decoded before it.

In ProteinMPNN, a layer's first weights multiply the concatenated features of a residue, an edge and a
neighbour. Here each part is multiplied by its own columns of the weights, so a residue's part is computed
once and not for each of its neighbours. The last weights of a message are applied to the sum of messages. The
results are the same.

Residues that are not resolved send no messages. (In the public code they do, in the decoder, for structures
with fewer resolved residues than neighbours. Without these residues, its results are the same.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, linear

from castoff.trainers.dpo.alphabet import KINDS
from castoff.trainers.dpo.network.features import Features, residues
from castoff.trainers.dpo.samples.batch import Backbones

_USUAL_MESSAGES = 30
"""Divisor of each sum of messages."""


class Encoded(NamedTuple):
    """The encoded structures, which do not depend on sequences."""

    nodes: Tensor
    """(batch, length, width)."""
    edges: Tensor
    """(batch, length, neighbours, width)."""
    nearest: Tensor
    """(batch, length, neighbours), int64: indices of the neighbours."""
    valid: Tensor
    """(batch, length, neighbours), bool: which neighbours are resolved."""


class InverseFolding(nn.Module):
    """Maps backbones, sequences and a decoding order to logits of each residue.

    The parameters' names are those of the public weights.
    """

    def __init__(
        self,
        hidden_size: int = 128,
        encoder_layers: int = 3,
        decoder_layers: int = 3,
        neighbours: int = 48,
        dropout: float = 0.1,
    ):
        super().__init__()
        self.features = Features(hidden_size, neighbours)
        self.W_e = nn.Linear(hidden_size, hidden_size)
        self.W_s = nn.Embedding(KINDS, hidden_size)
        self.encoder_layers = nn.ModuleList(EncoderLayer(hidden_size, dropout) for _ in range(encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(hidden_size, dropout) for _ in range(decoder_layers))
        self.W_out = nn.Linear(hidden_size, KINDS)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    @property
    def neighbours(self) -> int:
        """Largest number of a residue's neighbours, including itself."""
        return self.features.neighbours

    def decoders(self) -> Iterable[DecoderLayer]:
        """The decoder's layers, in order."""
        return cast("Iterable[DecoderLayer]", self.decoder_layers)

    def forward(self, backbones: Backbones, sequences: Tensor, order: Tensor) -> Tensor:
        """Logits (batch, sequences, length, residues), in float32.

        Args:
            backbones: the structures; each is encoded once.
            sequences: (batch, sequences, length), int64.
            order: (batch, length), int64: each residue's rank in decoding; a residue sees the sequence of
                lower ranks.
        """
        encoded = self.encode(backbones)
        nodes = self.decode(encoded, sequences, order.unsqueeze(1))[-1]
        return self.logits(nodes * backbones.resolved[:, None, :, None])

    def encode(self, backbones: Backbones) -> Encoded:
        """Encode the backbones, without sequences."""
        edges, nearest = self.features(backbones)
        valid = residues(backbones.resolved.unsqueeze(-1), nearest).squeeze(-1)
        edges = self.W_e(edges)
        nodes = edges.new_zeros(*edges.shape[:2], edges.shape[-1], dtype=torch.float32)
        for layer in cast("Iterable[EncoderLayer]", self.encoder_layers):
            nodes, edges = layer.exchanged(nodes, edges, nearest, valid)
        return Encoded(nodes, edges, nearest, valid)

    def decode(self, encoded: Encoded, sequences: Tensor, order: Tensor) -> list[Tensor]:
        """Residues (batch, sequences, length, width) before the decoder's first layer and after each layer.

        `order`: (batch, sequences, length), or (batch, 1, length) if it is the same for all sequences.
        """
        letters = self.W_s(sequences)
        nodes = encoded.nodes.unsqueeze(1).expand_as(letters)
        sources = neighbour_rows(encoded.nearest, order, sequences.shape[1])
        valid = encoded.valid.unsqueeze(1)
        states = [nodes]
        for layer in self.decoders():
            messages = layer.messages(encoded.nodes, letters, nodes)
            edges = layer.by_edges(encoded.edges).unsqueeze(1)
            nodes = layer(nodes, edges, residues(messages, sources), valid)
            states.append(nodes)
        return states

    def logits(self, nodes: Tensor) -> Tensor:
        """Map residues (…, width) after the last layer to logits (…, residues), in float32."""
        with torch.autocast(nodes.device.type, enabled=False):
            logits: Tensor = self.W_out(nodes.float())
        return logits


def neighbour_rows(nearest: Tensor, order: Tensor, number: int) -> Tensor:
    """Each neighbour's row of `DecoderLayer.messages`: (batch, number of sequences, length, neighbours).

    `nearest`: (batch, length, neighbours); `order`: (batch, sequences or 1, length).
    """
    length = nearest.shape[1]
    ranks = residues(order.transpose(1, 2), nearest).permute(0, 3, 1, 2)
    first = length * torch.arange(number, device=nearest.device)[:, None, None]
    rows = nearest.unsqueeze(1)
    return torch.where(ranks < order.unsqueeze(-1), rows + first, rows + number * length)


class MessageLayer(nn.Module):
    """A layer in which residues get messages from their neighbours.

    `parts`: how many vectors a message is made from: the residue, the edge, and one or two of the neighbour.
    """

    def __init__(self, width: int, parts: int, dropout: float):
        super().__init__()
        self.dropout = dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.W1 = nn.Linear(parts * width, width)
        self.W2 = nn.Linear(width, width)
        self.W3 = nn.Linear(width, width)
        self.dense = FeedForward(width)

    def by_edges(self, edges: Tensor) -> Tensor:
        """The part of messages that depends on edges (…, neighbours, width)."""
        return linear(edges, part_of(self.W1, 1), self.W1.bias)

    def forward(self, nodes: Tensor, edges: Tensor, neighbours: Tensor, valid: Tensor) -> Tensor:
        """Update residues (…, width) with their neighbours' messages.

        Args:
            nodes: (…, width): the residues before.
            edges: (…, neighbours, width), from `by_edges`.
            neighbours: (…, neighbours, width): the part of messages that depends on the neighbours.
            valid: (…, neighbours), bool: which messages count.
        """
        from_residue = linear(nodes, part_of(self.W1, 0)).unsqueeze(-2)
        messages = gelu(self.W2(gelu(from_residue + edges + neighbours)))
        count = valid.sum(-1, keepdim=True)
        total = (messages * valid.unsqueeze(-1)).sum(-2) / _USUAL_MESSAGES
        message = linear(total, self.W3.weight) + self.W3.bias * (count / _USUAL_MESSAGES)
        nodes = self.norm1(nodes + self.dropped(message))
        out: Tensor = self.norm2(nodes + self.dropped(self.dense(nodes)))
        return out

    def dropped(self, values: Tensor) -> Tensor:
        """Apply dropout in training."""
        return dropout(values, self.dropout, self.training)


class EncoderLayer(MessageLayer):
    """Updates residues with messages from their neighbours, then edges with messages from the residues at
    both ends.
    """

    def __init__(self, width: int, dropout: float):
        super().__init__(width, 3, dropout)
        self.norm3 = nn.LayerNorm(width)
        self.W11 = nn.Linear(3 * width, width)
        self.W12 = nn.Linear(width, width)
        self.W13 = nn.Linear(width, width)

    def exchanged(
        self, nodes: Tensor, edges: Tensor, nearest: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Update residues (batch, length, width) and edges (batch, length, neighbours, width)."""
        neighbours = residues(linear(nodes, part_of(self.W1, 2)), nearest)
        nodes = self(nodes, self.by_edges(edges), neighbours, valid)
        from_residue = linear(nodes, part_of(self.W11, 0), self.W11.bias).unsqueeze(-2)
        neighbours = residues(linear(nodes, part_of(self.W11, 2)), nearest)
        hidden = gelu(from_residue + linear(edges, part_of(self.W11, 1)) + neighbours)
        message = self.W13(gelu(self.W12(hidden)))
        return nodes, self.norm3(edges + self.dropped(message))


class DecoderLayer(MessageLayer):
    """Updates residues with messages from their neighbours, which contain a neighbour's residue if it was
    decoded before.
    """

    def __init__(self, width: int, dropout: float):
        super().__init__(width, 4, dropout)

    def messages(self, encoded: Tensor, letters: Tensor, nodes: Tensor) -> Tensor:
        """Each residue's part of the messages to its neighbours, as rows for `neighbour_rows`.

        First come the rows for residues that are already decoded, for each sequence: (batch, sequences ×
        length); then those for residues that are not: (batch, length).

        Args:
            encoded: (batch, length, width), from the encoder.
            letters: (batch, sequences, length, width), the embedded sequences.
            nodes: (batch, sequences, length, width), the residues before this layer.
        """
        decoded = self.decoded_messages(letters, nodes).flatten(1, 2)
        return torch.cat([decoded, linear(encoded, part_of(self.W1, 3))], dim=1)

    def decoded_messages(self, letters: Tensor, nodes: Tensor) -> Tensor:
        """The part of messages that depends on neighbours (…, width) that are decoded."""
        return linear(letters, part_of(self.W1, 2)) + linear(nodes, part_of(self.W1, 3))


class FeedForward(nn.Module):
    """A feed-forward network for each residue."""

    def __init__(self, width: int):
        super().__init__()
        self.W_in = nn.Linear(width, 4 * width)
        self.W_out = nn.Linear(4 * width, width)

    def forward(self, nodes: Tensor) -> Tensor:
        """Map (…, width) to the same shape."""
        out: Tensor = self.W_out(gelu(self.W_in(nodes)))
        return out


def part_of(layer: nn.Linear, number: int) -> Tensor:
    """The columns of a layer's weights for one of the parts that its input is concatenated from."""
    width = layer.out_features
    return layer.weight[:, number * width : (number + 1) * width]
