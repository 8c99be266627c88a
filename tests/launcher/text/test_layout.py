"""Text that fits a width: tables, bars and curves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.screen.widgets import footer
from castoff.launcher.text.layout import Cell, Line, bar, cut, fitted, number, sparkline, table


def text(line: Line) -> str:
    return "".join(span.text for span in line)


HEADINGS = ("run", "state", "why", "age")


def test_columns_go_one_after_the_other() -> None:
    rows = [["a" * 20, "running", "w" * 30, "5m"]]
    widths = [
        [HEADINGS[at] for at in fitted(HEADINGS, rows, width, dispensable=("age", "why", "state"))]
        for width in (66, 65, 60, 30, 1)
    ]
    assert widths == [[*HEADINGS], [*HEADINGS[:3]], ["run", "state"], ["run", "state"], ["run"]]
    assert [*fitted(HEADINGS, rows, None)] == [0, 1, 2, 3]


def test_an_empty_column_is_left_out_but_the_first() -> None:
    assert [*fitted(HEADINGS, [["", "running", "", ""]], 80)] == [0, 1]
    assert [*fitted(HEADINGS, [], 80)] == [0]


def test_flexible_columns_share_what_is_left() -> None:
    rows = [[Cell("a" * 20), Cell("running"), Cell("w" * 50), Cell("5m", right=True)]]
    heading, row = table(HEADINGS, rows, 60, dispensable=("age",), flexible={"run": 12, "why": 12})
    assert text(heading) == "run                   state    why                       age"
    assert text(row) == f"{'a' * 20}  running  {'w' * 23}…   5m"
    assert [span.style for span in heading if span.text.strip()] == 4 * ["bold"]
    narrow = table(HEADINGS, rows, 40, dispensable=("age",), flexible={"run": 12, "why": 16})
    assert text(narrow[1]) == f"{'a' * 12}…  running  {'w' * 15}…"


@given(st.lists(st.tuples(*4 * [st.text(max_size=60)]), max_size=5), st.integers(12, 200))
def test_a_table_whose_columns_may_all_go_always_fits(rows: list[tuple[str, ...]], width: int) -> None:
    cells = [[Cell(word) for word in row] for row in rows]
    lines = table(HEADINGS, cells, width, dispensable=HEADINGS[1:], flexible={"run": 5})
    assert len(lines) == len(rows) + 1
    assert all(len(text(line)) <= width for line in lines)
    assert len({len(text(line)) for line in lines}) == 1


@given(st.text(), st.integers(0, 100))
def test_what_is_cut_fits_and_says_so(words: str, width: int) -> None:
    found = cut(words, width)
    assert len(found) <= width
    assert found == words if len(words) <= width else width == 0 or found.endswith("…")


def test_bars() -> None:
    assert (bar(0, 4), bar(0.5, 4), bar(1, 4), bar(7, 4), bar(-1, 4)) == (
        "░░░░",
        "██░░",
        "████",
        "████",
        "░░░░",
    )


def test_a_curve_in_one_line() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, 1, 9, 9], 2) == "▁█"
    assert sparkline([3, 3], 9) == "▁▁"
    assert sparkline([], 9) == sparkline([1], 0) == ""


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.integers(1, 80))
def test_any_curve_fits(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) == min(width, len(values))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *(
            (1200.0, "1200"),
            (12345678.0, "12345678"),
            (0.31234567, "0.3123"),
            (1e-9, "1e-09"),
            (1e12, "1e+12"),
            (-2, "-2"),
            (0, "0"),
        ),
        *((math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")),
    ],
)
def test_numbers(value: float, words: str) -> None:
    assert number(value) == words


def test_a_narrow_footer_keeps_the_keys_that_lead_out() -> None:
    keys = {"Enter": "open", "l": "logs", "s": "stop", "?": "help", "q": "quit"}
    assert footer(keys, 50).rstrip() == "Enter open  l logs  s stop  ? help  q quit"
    assert footer(keys, 35).rstrip() == "Enter open  l logs  ? help  q quit"
    assert footer(keys, 5) == "Enter open  ? help  q quit"
