"""How far a program is, from what it reports by whatever names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.history.metrics import Metrics, Report
from castoff.launcher.history.progress import Metric, device_use, pace, progress_of, speed_unit, time_left
from castoff.launcher.history.reading import MetricsReader
from castoff.trainers.reporting.sinks import METRICS


def reported(tmp_path: Path, *lines: dict[str, Any]) -> Metrics:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return MetricsReader().look([path])


def test_what_castoffs_trainers_report(tmp_path: Path) -> None:
    names = {
        "train/loss": 0.25,
        "train/samples_per_second": 800,
        "train/slowest_rank": 3,
        "train/slowest_rank_lag": 0.04,
        "train/utilization": 0.93,
        "train/memory_gb": 38.2,
        "train/lr": 0.001,
        "val/loss": 0.5,
    }
    assert names.keys() <= METRICS.keys()
    lines = [{"step": step, "time": 1000 + step / 2, **names} for step in (10, 20, 30)]
    found = progress_of(reported(tmp_path, {"step": 0, "total_steps": 100}, *lines))
    assert (found.step, found.total, found.part, found.pace) == (30, 100, 0.3, 2)
    assert (found.loss, found.curve) == (("train/loss", 0.25), 3 * [0.25])
    assert found.speed == ("train/samples_per_second", 800)
    assert (found.slowest_rank, found.slowest_lag) == (3, 0.04)
    assert (found.utilization, found.memory_gb) == (0.93, 38.2)
    assert found.others == [Metric("train/lr", 0.001), Metric("val/loss", 0.5)]
    assert found.end == 1015 + 70 / 2


@pytest.mark.parametrize(
    ("names", "loss"),
    [
        (["lr", "loss"], "loss"),
        (["val_loss", "train_loss"], "train_loss"),
        (["val/loss", "model.loss"], "model.loss"),
        (["val/loss", "accuracy"], "val/loss"),
        (["loss_scale", "loss"], "loss"),
        (["Loss"], "Loss"),
        (["nll", "accuracy"], None),
    ],
)
def test_the_loss_by_any_name(tmp_path: Path, names: list[str], loss: str | None) -> None:
    line = {name: at + 1.0 for at, name in enumerate(names)}
    found = progress_of(reported(tmp_path, {"step": 1, **line}))
    assert found.loss == (None if loss is None else Metric(loss, line[loss]))
    assert [one.name for one in found.others] == [name for name in names if name != loss]


def test_of_nothing() -> None:
    found = progress_of(Metrics())
    assert (found.step, found.part, found.end, found.loss) == (None, None, None, None)


def test_the_pace_is_that_of_this_attempt(tmp_path: Path) -> None:
    """It was down for an hour between step 20 and 30."""
    times = {10: 1000, 20: 1001, 30: 5000, 40: 5002, 50: 5004}
    metrics = reported(tmp_path, *({"step": step, "time": at, "loss": 1} for step, at in times.items()))
    assert progress_of(metrics, since=4990).pace == 5


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [Report(1, {}, 5.0)],
        [Report(1, {}, None), Report(2, {}, None)],
        [Report(1, {}, 5.0), Report(2, {}, 5.0)],
        [Report(2, {}, 5.0), Report(2, {}, 6.0)],
        [Report(2, {}, 6.0), Report(3, {}, 5.0)],
    ],
)
def test_no_pace_is_made_up(reports: list[Report]) -> None:
    assert pace(reports) is None


def test_what_ends_it_first() -> None:
    assert time_left(None, None, 0) is None
    assert time_left(160, 200, 100) == (60, False, 100)
    assert time_left(300, 200, 100) == (100, True, 200)
    assert time_left(None, 200, 100) == (100, True, None)
    assert time_left(50, None, 100) == (0, False, None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("train/samples_per_second", "samples/s"),
        ("tokens_per_sec", "tokens/s"),
        ("train.images_per_second", "images/s"),
        ("throughput", "throughput"),
    ],
)
def test_units_of_speed(name: str, words: str) -> None:
    assert speed_unit(name) == words


@pytest.mark.parametrize(
    ("name", "values", "use"),
    [
        ("train/utilization", [0.5, 0.7], 0.6),
        ("gpu_utilization", [0, 90], 0.45),
        ("gpu_utilization", [-1, 0.5], None),
        ("lr", [0.5, 0.7], None),
    ],
)
def test_how_busy_devices_were(tmp_path: Path, name: str, values: list[float], use: float | None) -> None:
    found = reported(tmp_path, *({"step": at, "time": at, name: one} for at, one in enumerate([*values, 1])))
    assert device_use(found, 0, len(values) - 1.5) == (None if use is None else pytest.approx(use))
    assert device_use(found, 100, None) is None
