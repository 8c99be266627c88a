"""Draws a run's curves from its metrics file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.reporting.throughput import TIMED

logger = logging.getLogger(__name__)

_MARKS = 50
"""The most epochs whose ends are marked; more marks would hide the curves."""


def draw_curves(folder: Path, lines: Mapping[str, float] | None = None) -> Path | None:
    """Draw `curves.png` in a run's folder, from its metrics.jsonl; returns None if that fails.

    Failures are only logged, because a picture must not end a training.
    """
    picture = folder / "curves.png"
    try:
        draw(folder / "metrics.jsonl", picture, lines)
    except ModuleNotFoundError as error:
        logger.info("no picture of the curves: %s; python -m pip install matplotlib", error)
        return None
    except OSError as error:
        logger.warning("no picture of the curves: %s", error)
        return None
    return picture


def draw(metrics: Path, picture: Path, lines: Mapping[str, float] | None = None) -> None:
    """Draw the loss on the left and other metrics on the right; `lines`: values drawn for comparison.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        OSError: a file cannot be read or written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = MetricsFile(metrics).read()
    figure = Figure(figsize=(10, 4))  # an automatic layout would draw all of it twice
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.13, top=0.96, wspace=0.18)
    left, right = figure.subplots(1, 2)
    lowest = min((_plot(left, records, name) for name in ("train/loss", "val/loss")), default=0.0)
    left.set(xlabel="step", ylabel="loss", yscale="log" if 0 < lowest < float("inf") else "linear")
    names = others(records)
    for name in names:
        _plot(right, records, name)
    for number, (name, value) in enumerate((lines or {}).items()):
        right.axhline(value, linestyle="--", color=f"C{number + len(names)}", label=name)
    right.set(xlabel="step")
    ends, _ = series(records, "train_epoch/loss")
    for side in (left, right):
        for end in ends if len(ends) <= _MARKS else ():
            side.axvline(end, color="0.85", linewidth=0.8, zorder=0)
        if side.get_legend_handles_labels()[0]:
            side.legend()
    figure.savefig(picture, dpi=100)


def series(records: list[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """(steps, values) of a metric, without records that lack it."""
    points = [(record["step"], record[name]) for record in records if record.get(name) is not None]
    return [step for step, _ in points], [value for _, value in points]


def others(records: list[dict[str, Any]]) -> list[str]:
    """Names of metrics other than the loss: of validation, else of training, else the learning rate."""
    seen = {key for record in records for key in record}
    hidden = {"loss", "best_loss", "without_improvement", "lr", "grad_norm", *TIMED}
    for part in ("val/", "train/"):
        names = sorted(key for key in seen if key.startswith(part) and key.removeprefix(part) not in hidden)
        if names:
            return names
    return [name for name in ("train/lr",) if name in seen]


def _plot(side: Any, records: list[dict[str, Any]], name: str) -> float:
    """Draw a metric, and return its lowest value."""
    steps, values = series(records, name)
    if steps:
        side.plot(steps, values, label=name, marker="." if len(steps) < 50 else "")
    return min(values, default=float("inf"))
