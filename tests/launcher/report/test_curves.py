"""Which metrics share a plot, and which points of a long curve are drawn."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.report.curves import Plot, curve, grouped, plots, plots_of_several, points_of_each, thin
from castoff.launcher.report.page import page
from castoff.launcher.report.results import Column, columns, summarised

from .made import facts, metrics, point, result


def test_what_belongs_together_shares_a_plot() -> None:
    names = [
        *("train/lr", "train/loss", "gradients/a", "gradients/b", "val/f1/0", "val/f1/1", "test/f1/0"),
        *("plain", "val/loss", "val_acc", "train_acc", "validation"),
    ]
    assert grouped(names) == [
        ("loss", ["val/loss", "train/loss"]),
        ("f1", ["val/f1/0", "val/f1/1", "test/f1/0"]),
        ("acc", ["val_acc", "train_acc"]),
        ("lr", ["train/lr"]),
        ("gradients", ["gradients/a", "gradients/b"]),
        ("plain", ["plain"]),
        ("validation", ["validation"]),
    ]


def test_a_plot_has_as_many_curves_as_can_be_told_apart() -> None:
    found = grouped([f"ranks/{number}" for number in range(20)])
    assert [(title, len(names)) for title, names in found] == [
        ("ranks", 8),
        ("ranks (2)", 8),
        ("ranks (3)", 4),
    ]


@given(st.lists(st.text(max_size=12), unique=True))
def test_no_metric_is_lost_or_drawn_twice(names: list[str]) -> None:
    assert sorted(name for _, some in grouped(names) for name in some) == sorted(names)


def test_a_short_curve_is_drawn_whole() -> None:
    (found,) = plots(metrics(loss=[3.0, 2.0, 5.0]))
    (line,) = found.curves
    assert found.title == "loss" and line.label == "loss" and not line.thinned
    assert line.points == [point(0, 3), point(1, 2), point(2, 5)]
    assert line.values == (3, point(2, 5), point(1, 2), point(2, 5), 0, None)
    assert plots(metrics()) == list[Plot]()


def test_what_is_not_finite_is_counted_and_not_drawn() -> None:
    (found,) = plots(metrics(loss=[math.inf, 2.0, 5.0, math.nan], bad=[math.nan]))
    (line,) = found.curves
    assert line.points == [point(1, 2), point(2, 5)] and not line.thinned
    assert math.isnan(line.values.last.value) and line.values.last.step == 3
    assert line.values[2:] == (point(1, 2), point(2, 5), 2, point(0, math.inf))
    bad = summarised(Column([7.0], [math.nan]))
    assert (bad.smallest, bad.largest, bad.best(largest=True), bad.odd) == (None, None, None, 1)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=500),
    st.integers(min_value=2, max_value=50),
)
def test_a_long_curve_keeps_its_ends_and_peaks(values: list[float], limit: int) -> None:
    column = Column([float(step) for step in range(len(values))], values)
    found = thin(column, limit)
    assert len(found) <= limit + 2
    assert found == sorted(set(found))
    assert found[0] == (0, values[0]) and found[-1] == (len(values) - 1, values[-1])
    drawn = [one.value for one in found]
    assert (min(drawn), max(drawn)) == (min(values), max(values))
    assert all(values[int(one.step)] == one.value for one in found)


def test_a_curve_says_that_it_is_thinned_and_keeps_its_numbers() -> None:
    column = Column([*map(float, range(10_000))], [float(step % 97) for step in range(10_000)])
    line = curve("x", column, points_of_each(1))
    assert line.thinned and line.values.number == 10_000 and len(line.points) <= 2_002
    assert line.values == summarised(column)


def test_later_attempts_are_marked_on_every_curve() -> None:
    found = metrics(loss=[4.0, 3.0, 2.0, 1.0], rate=[1.0])
    found.restarts = [2.0, 2.5, 9.0]
    loss, rate = plots(found)
    assert loss.curves[0].marks == [2, 3] and rate.curves[0].marks == []
    (several,) = plots_of_several([("a", found), ("b", metrics(loss=[1.0]))], ["loss", "none"], 100)
    assert several.metric == "loss"
    assert [(one.label, one.marks) for one in several.curves] == [("a", [2, 3]), ("b", [])]
    text = page(facts(result(0), metrics=found, plots=[loss]))
    assert '"y":[4,3,2,1],"marks":[2,3]}' in text and "◆ marks where another attempt begins." in text
    assert ">restarts at step</th>" in text and ">2, 2.5, 9</td>" in text


def test_many_curves_have_fewer_points_each() -> None:
    assert [points_of_each(number) for number in (0, 1, 100, 200, 5000)] == [2000, 2000, 1000, 500, 200]


def test_columns_of_what_is_reported_now_and_then() -> None:
    found = columns(metrics(a=[1, 2, 3], b=[4]))
    assert found == {"a": Column([0, 1, 2], [1, 2, 3]), "b": Column([0], [4])}
