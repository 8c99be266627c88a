"""A message-passing network that reads backbones and writes sequences for them, residue by residue.

In the manner of ProteinMPNN (Dauparas et al., Science 378, 2022), whose public weights fit: an encoder in
which neighbours and what is between them learn of each other, and a decoder in which a residue also knows
the sequence of those neighbours that were decoded before it.

A layer's first weights take what is known of a residue, of its edge and of its neighbour side by side. Here
each part is multiplied by its own columns of them: what is a residue's own once, not once for each of its
neighbours. The last weights of a message come after the sum of messages. The numbers are the same.

Residues that are not resolved say nothing. (In the public code they do, to the decoder, in structures with
fewer resolved residues than neighbours; its numbers are the same as these once they are left out.)
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
"""Divisor of sums of messages."""


class Encoded(NamedTuple):
    """The encoded structures, before any residue is known."""

    nodes: Tensor
    """(batch, length, width)."""
    edges: Tensor
    """(batch, length, neighbours, width)."""
    nearest: Tensor
    """(batch, length, neighbours), int64: which residues the neighbours are."""
    valid: Tensor
    """(batch, length, neighbours), bool: those that are resolved."""


class InverseFolding(nn.Module):
    """Backbones, sequences and an order of decoding to logits of each residue.

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
        """The most neighbours that a residue has, itself among them."""
        return self.features.neighbours

    def decoders(self) -> Iterable[DecoderLayer]:
        """The layers of the decoder, in their order."""
        return cast("Iterable[DecoderLayer]", self.decoder_layers)

    def forward(self, backbones: Backbones, sequences: Tensor, order: Tensor) -> Tensor:
        """Logits (batch, sequences, length, residues), in float32.

        Args:
            backbones: `Backbones`, encoded once.
            sequences: (batch, sequences, length), int64.
            order: (batch, length), int64: a residue sees the sequence of those with a smaller place.
        """
        encoded = self.encode(backbones)
        nodes = self.decode(encoded, sequences, order.unsqueeze(1))[-1]
        return self.logits(nodes * backbones.resolved[:, None, :, None])

    def encode(self, backbones: Backbones) -> Encoded:
        """Features of the backbones alone."""
        edges, nearest = self.features(backbones)
        valid = residues(backbones.resolved.unsqueeze(-1), nearest).squeeze(-1)
        edges = self.W_e(edges)
        nodes = edges.new_zeros(*edges.shape[:2], edges.shape[-1], dtype=torch.float32)
        for layer in cast("Iterable[EncoderLayer]", self.encoder_layers):
            nodes, edges = layer.exchanged(nodes, edges, nearest, valid)
        return Encoded(nodes, edges, nearest, valid)

    def decode(self, encoded: Encoded, sequences: Tensor, order: Tensor) -> list[Tensor]:
        """Residues (batch, sequences, length, width) as each layer of the decoder finds and leaves them.

        `order`: (batch, sequences, length), or (batch, 1, length) where it is the same for all sequences.
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
        """Residues (…, width) as the last layer leaves them to logits (…, residues), in float32."""
        with torch.autocast(nodes.device.type, enabled=False):
            found: Tensor = self.W_out(nodes.float())
        return found


def neighbour_rows(nearest: Tensor, order: Tensor, number: int) -> Tensor:
    """Which row of `DecoderLayer.said` each neighbour is: (batch, number of sequences, length, neighbours).

    `nearest`: (batch, length, neighbours); `order`: (batch, sequences or 1, length).
    """
    length = nearest.shape[1]
    places = residues(order.transpose(1, 2), nearest).permute(0, 3, 1, 2)
    first = length * torch.arange(number, device=nearest.device)[:, None, None]
    rows = nearest.unsqueeze(1)
    return torch.where(places < order.unsqueeze(-1), rows + first, rows + number * length)


class MessageLayer(nn.Module):
    """Residues learn from what their neighbours say.

    `parts`: of what a message is made of: the residue, the edge, and what is known of the neighbour.
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
        """The part of messages that comes from edges (…, neighbours, width)."""
        return linear(edges, part_of(self.W1, 1), self.W1.bias)

    def forward(self, nodes: Tensor, edges: Tensor, neighbours: Tensor, valid: Tensor) -> Tensor:
        """Residues (…, width) that know more.

        Args:
            nodes: before.
            edges: (…, neighbours, width), as `by_edges` gave them.
            neighbours: (…, neighbours, width): what the neighbours add to messages.
            valid: (…, neighbours), bool: messages that count.
        """
        own = linear(nodes, part_of(self.W1, 0)).unsqueeze(-2)
        messages = gelu(self.W2(gelu(own + edges + neighbours)))
        count = valid.sum(-1, keepdim=True)
        total = (messages * valid.unsqueeze(-1)).sum(-2) / _USUAL_MESSAGES
        learned = linear(total, self.W3.weight) + self.W3.bias * (count / _USUAL_MESSAGES)
        nodes = self.norm1(nodes + self.dropped(learned))
        out: Tensor = self.norm2(nodes + self.dropped(self.dense(nodes)))
        return out

    def dropped(self, values: Tensor) -> Tensor:
        """In training, without some."""
        return dropout(values, self.dropout, self.training)


class EncoderLayer(MessageLayer):
    """Residues learn from their neighbours, then edges from both their ends."""

    def __init__(self, width: int, dropout: float):
        super().__init__(width, 3, dropout)
        self.norm3 = nn.LayerNorm(width)
        self.W11 = nn.Linear(3 * width, width)
        self.W12 = nn.Linear(width, width)
        self.W13 = nn.Linear(width, width)

    def exchanged(
        self, nodes: Tensor, edges: Tensor, nearest: Tensor, valid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Residues (batch, length, width) and edges (batch, length, neighbours, width) that know more."""
        neighbours = residues(linear(nodes, part_of(self.W1, 2)), nearest)
        nodes = self(nodes, self.by_edges(edges), neighbours, valid)
        own = linear(nodes, part_of(self.W11, 0), self.W11.bias).unsqueeze(-2)
        neighbours = residues(linear(nodes, part_of(self.W11, 2)), nearest)
        hidden = gelu(own + linear(edges, part_of(self.W11, 1)) + neighbours)
        learned = self.W13(gelu(self.W12(hidden)))
        return nodes, self.norm3(edges + self.dropped(learned))


class DecoderLayer(MessageLayer):
    """Residues learn from their neighbours, of which those decoded before have a sequence, too."""

    def __init__(self, width: int, dropout: float):
        super().__init__(width, 4, dropout)

    def messages(self, encoded: Tensor, letters: Tensor, nodes: Tensor) -> Tensor:
        """What each residue may add to its neighbours' messages, for `neighbour_rows`.

        First the rows of residues that are already decoded, for each sequence: (batch, sequences ×
        length); then those of residues that are not: (batch, length).

        Args:
            encoded: (batch, length, width), by the encoder.
            letters: (batch, sequences, length, width), the sequences.
            nodes: the same for the residues, as this layer finds them.
        """
        decoded = self.decoded_messages(letters, nodes).flatten(1, 2)
        return torch.cat([decoded, linear(encoded, part_of(self.W1, 3))], dim=1)

    def decoded_messages(self, letters: Tensor, nodes: Tensor) -> Tensor:
        """Messages of residues (…, width) that are decoded."""
        return linear(letters, part_of(self.W1, 2)) + linear(nodes, part_of(self.W1, 3))


class FeedForward(nn.Module):
    """A network on each residue by itself."""

    def __init__(self, width: int):
        super().__init__()
        self.W_in = nn.Linear(width, 4 * width)
        self.W_out = nn.Linear(4 * width, width)

    def forward(self, nodes: Tensor) -> Tensor:
        """(…, width) to the same."""
        out: Tensor = self.W_out(gelu(self.W_in(nodes)))
        return out


def part_of(layer: nn.Linear, number: int) -> Tensor:
    """The columns of a layer's weights for one of the parts side by side that it takes."""
    width = layer.out_features
    return layer.weight[:, number * width : (number + 1) * width]
