"""A picture of how a run went, from its metrics file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainers.core.metrics import MetricsFile


def series(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """(steps, values) of a measure, where it was reported and is a number."""
    points = [(record["step"], record[name]) for record in records if record.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]


def draw(metrics: Path, picture: Path, lines: dict[str, float] | None = None) -> None:
    """Training loss on the left, validation measures on the right, with `lines` to compare with.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = MetricsFile(metrics).read()
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name in ("train/loss", "val/loss"):
        steps, values = series(records, name)
        left.plot(steps, values, label=name, marker="." if len(steps) < 50 else "")
    left.set(xlabel="step", ylabel="loss", yscale="log")
    measures = sorted({key for record in records for key in record if key.startswith("val/")} - {"val/loss"})
    for name in measures:
        steps, values = series(records, name)
        if len(set(values)) > 1:
            right.plot(steps, values, label=name, marker=".")
    for number, (name, value) in enumerate((lines or {}).items()):
        right.axhline(value, linestyle="--", color=f"C{number + len(measures)}", label=name)
    right.set(xlabel="step")
    for side in (left, right):
        if side.get_legend_handles_labels()[0]:
            side.legend()
    figure.savefig(picture, dpi=100)
