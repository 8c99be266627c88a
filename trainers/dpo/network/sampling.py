"""Samples sequences for structures, residue by residue in decoding order.

A residue costs as much as it has neighbours, however long the structure is: what each decoded residue says
to its neighbours is kept.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from castoff.trainers.dpo.alphabet import KINDS, UNKNOWN
from castoff.trainers.dpo.network.features import residues
from castoff.trainers.dpo.network.model import DecoderLayer, Encoded, InverseFolding, neighbour_rows
from castoff.trainers.dpo.samples.batch import Backbones


class Sampled(NamedTuple):
    """Sampled sequences."""

    sequences: Tensor
    """(batch, number, length), int64; what is not designed is as it was."""
    logits: Tensor
    """(batch, number, length, residues), float32: of designed residues, before they are divided by a
    temperature; those of others are 0."""


@torch.no_grad()
def sampled(
    model: InverseFolding,
    backbones: Backbones,
    native: Tensor,
    designed: Tensor,
    order: Tensor,
    numbers: Tensor,
    temperature: float,
) -> Sampled:
    """Draw sequences; never X, which stands for residues that nobody knows.

    Args:
        model: in eval mode.
        backbones: structures.
        native: (batch, length), int64: the residues that are not designed, and anything else.
        designed: (batch, length), bool: resolved residues that are drawn.
        order: (batch, number, length), int64: of each sequence, the residues' places in the decoding.
        numbers: (batch, number, length), from 0 to below 1, by which residues are chosen. So what is drawn
            for a structure does not depend on what is drawn beside it.
        temperature: logits are divided by it; at 0 the likeliest residue is taken.
    """
    encoded = model.encode(backbones)
    sequences = native.unsqueeze(1).repeat(1, order.shape[1], 1)
    logits = torch.zeros(*sequences.shape, KINDS, device=native.device)
    known = _Known(model, encoded, sequences, order)
    places = order.argsort(-1)
    wanted = order[designed.unsqueeze(1).expand_as(order)]
    # Before the first designed residue everything is known from the beginning, and after the last one
    # there is nothing to find out.
    steps = range(int(wanted.min()), int(wanted.max()) + 1) if wanted.numel() else range(0)
    for step in steps:
        which = places[..., step]
        found = known.logits_of(which)
        drawn = _drawn(found, numbers.gather(-1, which.unsqueeze(-1)), temperature)
        free = designed.gather(-1, which)
        letters = torch.where(free, drawn, native.gather(-1, which))
        known.decode(which, letters)
        sequences.scatter_(-1, which.unsqueeze(-1), letters.unsqueeze(-1))
        rows = which[..., None, None].expand(-1, -1, 1, KINDS)
        logits.scatter_(2, rows, torch.where(free.unsqueeze(-1), found, 0.0).unsqueeze(2))
    return Sampled(sequences, logits)


class _Known:
    """The messages between residues while more and more of them are decoded."""

    def __init__(self, model: InverseFolding, encoded: Encoded, sequences: Tensor, order: Tensor):
        self._model = model
        self._encoded = encoded
        self._layers: list[DecoderLayer] = list(model.decoders())
        self._sources = neighbour_rows(encoded.nearest, order, order.shape[1])
        self._edges = [layer.by_edges(encoded.edges) for layer in self._layers]
        # As if all were decoded: true of the residues before the first one that is drawn, and for the
        # others not looked at until they are decoded.
        letters = model.W_s(sequences)
        states = model.decode(encoded, sequences, order)
        self._messages = [
            layer.messages(encoded.nodes, letters, nodes)
            for layer, nodes in zip(self._layers, states[:-1], strict=True)
        ]
        self._states: list[Tensor] = []

    def logits_of(self, which: Tensor) -> Tensor:
        """Logits of one residue (batch, number) of each sequence: (batch, number, residues)."""
        encoded = self._encoded
        width, count = encoded.nodes.shape[-1], encoded.nearest.shape[-1]
        sources = self._sources.gather(2, which[..., None, None].expand(-1, -1, 1, count)).squeeze(2)
        valid = residues(encoded.valid, which)
        nodes = residues(encoded.nodes, which)
        self._states = []
        for layer, edges, messages in zip(self._layers, self._edges, self._messages, strict=True):
            self._states.append(nodes)
            between = residues(edges.flatten(2), which).unflatten(-1, (count, width))
            nodes = layer(nodes, between, residues(messages, sources), valid)
        return self._model.logits(nodes)

    def decode(self, which: Tensor, letters: Tensor) -> None:
        """Let those residues, of which `logits_of` was asked last, be `letters` (batch, number)."""
        embedded = self._model.W_s(letters)
        first = self._sources.shape[2] * torch.arange(which.shape[1], device=which.device)
        rows = (which + first).unsqueeze(-1).expand_as(embedded)
        for layer, messages, nodes in zip(self._layers, self._messages, self._states, strict=True):
            messages.scatter_(1, rows, layer.decoded_messages(embedded, nodes))


def _drawn(logits: Tensor, numbers: Tensor, temperature: float) -> Tensor:
    """Sample residues (…) from logits (…, residues), with uniform random numbers (…, 1).

    In float64, as far as there is one: the rare ones are few, but are there.
    """
    logits = logits.to(torch.float32 if logits.device.type == "mps" else torch.float64)
    logits = logits[..., :UNKNOWN]
    if temperature == 0:
        return logits.argmax(-1)
    # Less the largest one first, so that a low temperature makes nothing infinite but what is impossible.
    weights = ((logits - logits.amax(-1, keepdim=True)) / temperature).exp()
    below = weights.cumsum(-1)
    return (numbers.to(below.dtype) * below[..., -1:] >= below).sum(-1)
