"""The diffusion transformer: it maps noisy tokens and the noise level to the logarithm of the score.

Its blocks are attention and a feed-forward network, whose norms are shifted, scaled and gated by the noise
level (Peebles and Xie, arXiv 2212.09748), with rotary positions (Su et al., arXiv 2104.09864), in the shape
of Lou, Meng and Ermon's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.alphabet import KINDS, MASK, PADDING
from castoff.trainers.sedd.kernels import dropout, gelu
from castoff.trainers.sedd.noise import log_expm1
from castoff.trainers.sedd.settings import Model


class Shape(NamedTuple):
    """The sizes of a network's parts."""

    hidden_size: int
    n_blocks: int
    n_heads: int
    cond_dim: int
    dropout: float = 0.1


SIZES = {
    "tiny": Shape(64, 4, 4, 64, dropout=0.0),
    "mini": Shape(256, 6, 8, 128),
    "small": Shape(768, 12, 12, 128),
}
"""Networks of 0.3, 6 and 90 million parameters; small is the size of Lou, Meng and Ermon's SEDD small."""


def shape_of(settings: Model) -> Shape:
    """The shape that `size` names, with its numbers replaced by those in the settings.

    Raises:
        ConfigError: `hidden_size` is not a multiple of twice `n_heads`.
    """
    numbers = {name: getattr(settings, name) for name in Shape._fields}
    shape = SIZES[settings.size]._replace(
        **{name: value for name, value in numbers.items() if value is not None}
    )
    if shape.hidden_size % (2 * shape.n_heads):
        raise ConfigError(
            [
                f"model.n_heads: is {shape.n_heads}, but model.hidden_size, which is "
                f"{shape.hidden_size}, must be a multiple of 2 x n_heads; write hidden_size: "
                f"{16 * shape.n_heads} or another n_heads"
            ]
        )
    return shape


class DiffusionTransformer(nn.Module):
    """Maps noisy tokens to the log score of each residue at each position.

    `scale_by_sigma`: add the part of the log score that depends on the noise alone, on the absorbing graph,
    so that an untrained network has the best score for uniform residues. `checkpointing`: compute the blocks'
    activations again for the gradient, instead of keeping them.
    """

    def __init__(self, shape: Shape, *, scale_by_sigma: bool, checkpointing: bool = False):
        super().__init__()
        self.scale_by_sigma = scale_by_sigma
        self.head_size = shape.hidden_size // shape.n_heads
        self.checkpointing = checkpointing
        self.tokens = nn.Embedding(KINDS, shape.hidden_size)
        self.noise = NoiseEmbedding(shape.cond_dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_blocks))
        self.shift_and_scale = _zero(nn.Linear(shape.cond_dim, 2 * shape.hidden_size))
        self.norm = Norm(shape.hidden_size)
        self.head = _zero(nn.Linear(shape.hidden_size, MASK))
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens: Tensor, sigma: Tensor, padded: bool = True) -> Tensor:
        """Map tokens (batch, length) under total noise sigma (batch,) to log scores (batch, length,
        residues), in float32.

        `padded`: whether some tokens are PADDING, to which no other token attends.
        """
        x = self.tokens(tokens)
        noise = silu(self.noise(sigma))
        seen = (tokens != PADDING)[:, None, None] if padded else None
        turns = rotations(tokens.shape[1], self.head_size, tokens.device)
        for block in self.blocks:
            if self.checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, noise, turns, seen, use_reentrant=False)
            else:
                x = block(x, noise, turns, seen)
        with torch.autocast(x.device.type, enabled=False):
            shift, scale = self.shift_and_scale(noise.float()).unsqueeze(1).chunk(2, dim=-1)
            score: Tensor = self.head(self.norm(x.float()) * (1 + scale) + shift)
            if self.scale_by_sigma:
                score = score - (log_expm1(sigma.float()) + math.log(MASK))[:, None, None]
        return score


class Block(nn.Module):
    """Attention, then a feed-forward network; the noise level scales what each adds, which is 0 at first."""

    def __init__(self, shape: Shape):
        super().__init__()
        width = shape.hidden_size
        self.n_heads = shape.n_heads
        self.head_size = width // shape.n_heads
        self.dropout = shape.dropout
        self.modulation = _zero(nn.Linear(shape.cond_dim, 6 * width))
        self.attention_norm, self.feed_forward_norm = Norm(width), Norm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, noise: Tensor, turns: Tensor, seen: Tensor | None) -> Tensor:
        """Map activations (batch, length, width) to those after the block; `noise`: the noise's embedding
        (batch, cond_dim).
        """
        parts = self.modulation(noise).unsqueeze(1).chunk(6, dim=-1)
        shift, scale, gate = parts[:3]
        attended = self._attended(torch.addcmul(shift, self.attention_norm(x), 1 + scale), turns, seen)
        x = torch.addcmul(x, gate, self._dropped(attended))
        shift, scale, gate = parts[3:]
        inner = self.wide(torch.addcmul(shift, self.feed_forward_norm(x), 1 + scale))
        return torch.addcmul(x, gate, self._dropped(self.narrow(gelu(inner))))

    def _attended(self, x: Tensor, turns: Tensor, seen: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.n_heads, self.head_size)
        queries_and_keys, value = heads.split((2, 1), dim=2)  # whose gradients are put together in one pass
        query, key = turned(queries_and_keys, turns[:, :, None, None]).unbind(2)
        query, key, value = (each.transpose(1, 2) for each in (query, key, value.squeeze(2)))
        out = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        gathered: Tensor = self.attention_out(out.transpose(1, 2).reshape(batch, length, width))
        return gathered

    def _dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class Norm(nn.Module):
    """LayerNorm with weights and no bias, in float32."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        with torch.autocast(x.device.type, enabled=False):
            normed: Tensor = layer_norm(x.float(), [x.shape[-1]], self.weight)
        return normed


class NoiseEmbedding(nn.Module):
    """Total noise as a vector: cosines and sines of many wavelengths, then two layers."""

    WAVES = 256

    def __init__(self, width: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(self.WAVES, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, sigma: Tensor) -> Tensor:
        """Map total noise (batch,) to its embedding (batch, width)."""
        half = self.WAVES // 2
        lengths = torch.exp(-math.log(10_000) * torch.arange(half, device=sigma.device) / half)
        angles = sigma.float().unsqueeze(-1) * lengths
        embedded: Tensor = self.layers(torch.cat([angles.cos(), angles.sin()], dim=-1))
        return embedded


def rotations(length: int, head_size: int, device: torch.device) -> Tensor:
    """Cosines and sines (2, length, head_size / 2) of the angles by which positions rotate pairs."""
    speeds = 10_000 ** (-torch.arange(0, head_size, 2, device=device) / head_size)
    angles = torch.outer(torch.arange(length, device=device), speeds)
    return torch.stack([angles.cos(), angles.sin()])


def turned(x: Tensor, turns: Tensor) -> Tensor:
    """Queries or keys (…, head_size), with each pair of numbers rotated by the angle of its position; `turns`
    (2, …, head_size / 2): the angles' cosines and sines.
    """
    cosine, sine = turns.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    turned_first = torch.addcmul(first * cosine, second, sine, value=-1)
    return torch.cat([turned_first, torch.addcmul(second * cosine, first, sine)], dim=-1)


def _zero(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
