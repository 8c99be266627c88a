"""Samples sequences for structures, residue by residue in decoding order.

The cost of a residue depends on its number of neighbours, not on the structure's length: the messages of
decoded residues are kept.
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
    """(batch, number, length), int64; residues that are not designed are unchanged."""
    logits: Tensor
    """(batch, number, length, residues), float32: logits of designed residues, not divided by the
    temperature; 0 for all others.
    """


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
    """Sample sequences. X, which stands for unknown residues, is never drawn.

    Args:
        model: in eval mode.
        backbones: structures.
        native: (batch, length), int64: the residues; those that are designed may be anything.
        designed: (batch, length), bool: which resolved residues are drawn.
        order: (batch, number, length), int64: each residue's rank in decoding, for each sequence.
        numbers: (batch, number, length), uniform in [0, 1): they decide which residues are drawn, so that a
            structure's sequences do not depend on the rest of the batch.
        temperature: divisor of the logits; 0: the likeliest residue is taken.
    """
    encoded = model.encode(backbones)
    sequences = native.unsqueeze(1).repeat(1, order.shape[1], 1)
    logits = torch.zeros(*sequences.shape, KINDS, device=native.device)
    messages = _Known(model, encoded, sequences, order)
    by_step = order.argsort(-1)
    designed_steps = order[designed.unsqueeze(1).expand_as(order)]
    # All residues before the first designed one are known, and nothing is drawn after the last designed one.
    steps = (
        range(int(designed_steps.min()), int(designed_steps.max()) + 1)
        if designed_steps.numel()
        else range(0)
    )
    for step in steps:
        which = by_step[..., step]
        step_logits = messages.logits_of(which)
        drawn = _drawn(step_logits, numbers.gather(-1, which.unsqueeze(-1)), temperature)
        free = designed.gather(-1, which)
        letters = torch.where(free, drawn, native.gather(-1, which))
        messages.decode(which, letters)
        sequences.scatter_(-1, which.unsqueeze(-1), letters.unsqueeze(-1))
        rows = which[..., None, None].expand(-1, -1, 1, KINDS)
        logits.scatter_(2, rows, torch.where(free.unsqueeze(-1), step_logits, 0.0).unsqueeze(2))
    return Sampled(sequences, logits)


class _Known:
    """The messages between residues, which change while one residue after the other is decoded."""

    def __init__(self, model: InverseFolding, encoded: Encoded, sequences: Tensor, order: Tensor):
        self._model = model
        self._encoded = encoded
        self._layers: list[DecoderLayer] = list(model.decoders())
        self._sources = neighbour_rows(encoded.nearest, order, order.shape[1])
        self._edges = [layer.by_edges(encoded.edges) for layer in self._layers]
        # As if all were decoded. This is right for residues before the first that is drawn; the messages of
        # others are not used before they are decoded.
        letters = model.W_s(sequences)
        states = model.decode(encoded, sequences, order)
        self._messages = [
            layer.messages(encoded.nodes, letters, nodes)
            for layer, nodes in zip(self._layers, states[:-1], strict=True)
        ]
        self._states: list[Tensor] = []

    def logits_of(self, which: Tensor) -> Tensor:
        """Logits (batch, number, residues) of one residue `which` (batch, number) of each sequence."""
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
        """Set the residues that were last passed to `logits_of` to `letters` (batch, number)."""
        embedded = self._model.W_s(letters)
        first = self._sources.shape[2] * torch.arange(which.shape[1], device=which.device)
        rows = (which + first).unsqueeze(-1).expand_as(embedded)
        for layer, messages, nodes in zip(self._layers, self._messages, self._states, strict=True):
            messages.scatter_(1, rows, layer.decoded_messages(embedded, nodes))


def _drawn(logits: Tensor, numbers: Tensor, temperature: float) -> Tensor:
    """Sample residues (…) from logits (…, residues), with uniform random numbers (…, 1).

    In float64, if the device has it: float32 leaves out rare residues.
    """
    logits = logits.to(torch.float32 if logits.device.type == "mps" else torch.float64)
    logits = logits[..., :UNKNOWN]
    if temperature == 0:
        return logits.argmax(-1)
    # The largest logit is subtracted first, so that a low temperature does not make exponentials infinite.
    weights = ((logits - logits.amax(-1, keepdim=True)) / temperature).exp()
    below = weights.cumsum(-1)
    return (numbers.to(below.dtype) * below[..., -1:] >= below).sum(-1)
