"""What an array's page shows about parameters, and the axes of its figures."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.report.axes import axis
from castoff.launcher.report.page import page
from castoff.launcher.report.results import Result
from castoff.launcher.report.sweep import Sweep, sweep

from .made import facts, result
from .test_page import HOSTILE, shape


def swept(*members: Result) -> Sweep:
    """What the page of these members shows."""
    found = sweep(facts(*members))
    assert found is not None
    return found


def rates(number: int, **more: Any) -> list[Result]:
    """Members with two parameters that differ, and one that does not."""
    return [
        result(at, {"optimizer.lr": 10.0**-at, "act": "ab"[at % 2], "seed": 1, **more}, val__loss=[2.0 + at])
        for at in range(number)
    ]


def test_numbers_lie_to_scale_and_names_at_equal_distances() -> None:
    width = axis("width", [64, 128, 192])
    assert [width.place(value) for value in (64, 128, 192, None, "x", 500)] == [0, 0.5, 1, None, None, None]
    assert [label.words for label in width.labels] == ["64", "128", "192"]
    rate = axis("lr", [10.0**-power for power in range(8)])
    assert rate.place(1e-7) == 0 and rate.place(1) == 1 and math.isclose(rate.place(0.1) or 0, 6 / 7)
    assert len(rate.labels) <= 6 and {"0.1", "0.001"} <= {label.words for label in rate.labels}
    names = axis("act", ["relu", "gelu", "relu", True])
    assert [label.words for label in names.labels] == ["True", "gelu", "relu"]
    assert names.place("gelu") == 0.5 and names.place(None) is None
    assert axis("one", [3, 3]).place(3) == 0.5


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400)


@given(st.lists(anything | st.lists(anything, max_size=2), max_size=40))
def test_every_value_has_a_place_on_its_axis(values: list[Any]) -> None:
    found = axis("x", values)
    places = [found.place(value) for value in values if value is not None]
    assert all(place is not None and -1e-9 <= place <= 1 + 1e-9 for place in places)
    assert all(-1e-9 <= label.at <= 1 + 1e-9 for label in found.labels)
    assert len(found.labels) <= 13 and (not places or found.labels)


def test_constant_parameters_are_apart_from_swept_ones() -> None:
    found = swept(*rates(12))
    assert found.swept and found.constant
    assert [*found.swept.rows] == [("optimizer.lr", "12", "1e-11 … 1"), ("act", "2", "a, b")]
    assert [*found.constant.rows] == [("seed", "1")]
    assert sweep(facts(result(0, {"a": 1}))) is None  # no array
    assert sweep(facts(result(0), result(1))) is None  # no parameters


def test_the_metric_has_a_dot_for_each_member_over_each_parameter() -> None:
    members = rates(4)
    members[1] = dataclasses.replace(members[1], state="failed")
    members[2] = dataclasses.replace(members[2], state="running")
    members.append(result(9, {"optimizer.lr": 1.0, "act": "a", "seed": 1}, val__loss=[math.nan]))
    found = swept(*members)
    assert [one.caption for one in found.scatters] == ["best val/loss over lr", "best val/loss over act"]
    for drawing in (one.drawing for one in found.scatters):
        forms = [drawing.count(f'class="{kind}"') for kind in ("dot", "ring", "cross", "best")]
        assert forms == [2, 1, 1, 1]
        assert "<title>member 0: lr=1, act=a; best val/loss 2</title>" in drawing
        assert "4 members, from 2 (member 0) to 5 (member 3)" in drawing
    assert found.overview and found.overview.caption == "lr, act and best val/loss"
    assert found.overview.drawing.count("<polyline") == 4 and found.sampled == ""
    assert swept(*(result(at, {"a": at}, x=[at]) for at in range(2))).overview is None


def test_other_metrics_are_drawn_too() -> None:
    members = [result(at, {"a": at}, val__loss=[1.0], val__f1=[at], rate=[2.0]) for at in range(3)]
    captions = [one.caption for one in swept(*members).further]
    assert captions == ["best val/f1 over a", "last rate over a"]


def test_thousands_of_members_are_sampled() -> None:
    members = [
        result(at, {"a": at, "b": at % 3, "c": f"x{at}"}, val__loss=[float(at)], val__f1=[1.0], t=[2.0])
        for at in range(4_000)
    ]
    made = facts(*members)
    text = page(made)
    assert len(text) < 1_500_000
    for number in (286, 100):
        assert f"{number} of 4,000 members are drawn, at equal distances in their order." in text
    assert "rows between the first 720 and the last 80 are left out: castoff results made-1 --csv" in text
    assert "member 0: a=0, b=0, c=x0; best val/loss 0" in text


@pytest.mark.parametrize("value", [HOSTILE, "]]>", "'", 10**400, math.nan, [HOSTILE]])
def test_hostile_names_and_values_are_text(value: Any) -> None:
    def made(name: str, value: Any) -> str:
        members = [
            result(at, {name: [value, "y"][at], "width": at}, **{f"x {name} loss": [1.0 + at]})
            for at in (0, 1)
        ]
        return page(facts(*members))

    plain = shape(made("harmless", "x" * 50 if len(str(value)) > 40 else "x"))
    assert shape(made(HOSTILE if isinstance(value, str) else "harmless", value)) == plain
    assert not re.findall("<script", made(HOSTILE, value))


@settings(max_examples=20)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), anything), min_size=2, max_size=5))
def test_members_of_any_parameters_have_figures(parameters: list[dict[str, Any]]) -> None:
    members = [result(at, some, val__loss=[float(at)]) for at, some in enumerate(parameters)]
    page(facts(*members)).encode()
