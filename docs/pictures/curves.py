"""What the three training systems learn, beside what they have to beat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from castoff.launcher.text.svg import document, line, rect, text
from docs.pictures.recorded import curves

Points = Sequence[Sequence[float]]
"""Each with a step and a value."""


class Chart(NamedTuple):
    """A curve over optimizer steps, and values that do not depend on them."""

    title: str
    curve: str
    """Its name in what was recorded, and what it is called in the picture."""
    called: str
    lines: Mapping[str, float]
    better: str


CHARTS = {
    "causets": Chart(
        *("Causal sets: manifold-like or not", "causets", "the network"),
        {"forest, 11 numbers": 0.932, "forest, all features": 0.943, "ordering fraction": 0.550},
        "accuracy on validation sets; higher is better",
    ),
    "dimension": Chart(
        *("Causal sets: the dimension", "dimension", "the network"),
        {"forest, 11 numbers": 0.185, "forest, all features": 0.165, "Myrheim-Meyer, rounded": 0.339},
        "mean error on validation sets; lower is better",
    ),
    "proteins": Chart(
        *("A small diffusion of proteins", "proteins", "the model, in training"),
        {"frequencies of residues": 2.894, "frequencies of triples": 2.876, "the model, held out": 2.867},
        "nats per residue; lower is better; the dashed lines are of held-out proteins",
    ),
    "structures": Chart(
        *("Inverse folding: what comes back of native sequences", "structures", "the network"),
        {"most frequent residue": 0.093},
        "share of the residues of validation chains; higher is better",
    ),
}
"""The lines are what the benches printed beside these runs, on held-out data."""

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT = 700, 330, 70, 64, 190


def chart(name: str) -> str:
    """One of `CHARTS`."""
    wanted, points = CHARTS[name], curves()[name]
    values = [value for _, value in points] + [*wanted.lines.values()]
    low, high = min(values), max(values)
    low, high = low - (high - low) * 0.08, high + (high - low) * 0.08
    steps = max(step for step, _ in points)
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - 50

    def place(step: float, value: float) -> tuple[float, float]:
        return _LEFT + step / steps * wide, _TOP + (high - value) / (high - low) * tall

    parts = [text(20, 28, wanted.title, "title"), text(20, 47, wanted.better, "small")]
    parts.append(rect(_LEFT, _TOP, wide, tall, kind="box"))
    for value in _ticks(low, high):
        _, y = place(0, value)
        parts += [line((_LEFT - 4, y), (_LEFT, y)), text(_LEFT - 8, y + 4, f"{value:g}", "small", "end")]
    for step in _ticks(0, steps):
        x, _ = place(step, low)
        parts.append(text(x, _TOP + tall + 18, f"{step:,.0f}", "small", "middle"))
    parts.append(text(_LEFT + wide / 2, _HEIGHT - 14, "optimizer steps", "small", "middle"))
    labels = {**wanted.lines, wanted.called: points[-1][1]}
    for value in wanted.lines.values():
        parts.append(line(place(0, value), place(steps, value), kind="line dashed"))
    parts.append(line(*(place(step, value) for step, value in points), kind="curve"))
    for called, y in _apart({called: place(0, value)[1] for called, value in labels.items()}, 15).items():
        parts.append(text(_LEFT + wide + 8, y + 4, f"{called} {labels[called]:.3f}", "small"))
    words = ", ".join(f"{called} {value:.3f}" for called, value in labels.items())
    return document(_WIDTH, _HEIGHT, f"{wanted.title}, {wanted.better}: {words}", parts)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two."""
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough)
    return [round(step * at, 10) for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _apart(places: Mapping[str, float], least: float) -> dict[str, float]:
    """The places moved down as far as needed to be that far from each other."""
    found: dict[str, float] = {}
    for name, y in sorted(places.items(), key=lambda each: each[1]):
        found[name] = max(y, max(found.values(), default=-least) + least)
    return found
