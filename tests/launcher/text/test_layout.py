"""Text that fits a width: tables, bars and curves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.screen.widgets import footer
from castoff.launcher.text.layout import Cell, Column, Line, bar, number, sparkline, table
from castoff.launcher.text.shortened import cells, cut_all, cut_ids, cut_middles


def text(line: Line) -> str:
    return "".join(span.text for span in line)


COLUMNS = (
    Column("run", least=12, shorten=cut_ids),
    Column("state"),
    Column("why", goes=2, least=12),
    Column("age", goes=1),
)
"""Those of a list of runs, nearly."""


def cells_of(*texts: str) -> list[Cell]:
    return [Cell(text, right=text == texts[-1]) for text in texts]


def words(line: Line) -> list[str]:
    return text(line).split()


def test_columns_are_hidden_one_after_the_other() -> None:
    rows = [cells_of("a" * 20, "running", "w" * 30, "5m")]
    for width, hidden in ((66, []), (40, []), (39, ["age"]), (34, ["why"]), (1, ["why", "age"])):
        found = table(COLUMNS, rows, width)
        assert found.hidden == hidden, width
    assert table(COLUMNS, rows, None).hidden == []


def test_one_that_is_hidden_leaves_its_room_to_smaller_ones() -> None:
    columns = (Column("run"), Column("age", goes=1), Column("members", goes=2), Column("why", goes=3))
    found = table(columns, [cells_of("abc", "5m", "m" * 30, "w" * 10)], 24)
    assert words(found.lines[0]) == ["run", "age", "why"] and found.hidden == ["members"]


def test_an_empty_column_is_left_out_but_the_first() -> None:
    assert words(table(COLUMNS, [cells_of("", "running", "", "")], 80).lines[0]) == ["run", "state"]
    assert words(table(COLUMNS, [], 80).lines[0]) == ["run"]


def test_a_column_of_one_word_may_be_left_out() -> None:
    columns = (Column("run"), Column("site", if_alike=False))
    alike, others = [cells_of("a", "aurora"), cells_of("b", "aurora")], [cells_of("c", "local")]
    assert words(table(columns, alike, 80).lines[0]) == ["run"]
    assert words(table(columns, alike + others, 80).lines[0]) == ["run", "site"]
    assert words(table(columns, alike, None).lines[0]) == ["run", "site"]


def test_columns_share_what_is_left() -> None:
    rows = [cells_of("a" * 20, "running", "w" * 50, "5m")]
    heading, row = table(COLUMNS, rows, 60).lines
    assert text(heading) == "run                   state    why                       age"
    assert text(row) == f"{'a' * 20}  running  {'w' * 23}…   5m"
    assert [span.style for span in heading if span.text.strip()] == 4 * ["bold"]
    narrow = table(COLUMNS, rows, 45).lines
    assert text(narrow[1]) == "aaaa..aaaaaaaaa  running  wwwwwwwwwwwwww…   5m"[:45] or text(narrow[1])


def test_an_id_that_loses_its_date_leaves_the_room_to_reasons() -> None:
    rows = [cells_of("train-20261120-101500-abcd", "failed", "w" * 50, "5m")]
    assert text(table(COLUMNS, rows, 60).lines[1]) == f"train..abcd  failed  {'w' * 33}…   5m"


TEXTS = st.text(st.sampled_from("abc-网🚀é …"), max_size=40)
ANY_COLUMNS = st.lists(
    st.builds(
        Column,
        st.text("abc", min_size=1, max_size=12),
        st.integers(0, 3),
        st.none() | st.integers(1, 30),
        st.sampled_from([cut_all, cut_ids, cut_middles]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(ANY_COLUMNS, st.lists(st.lists(TEXTS, min_size=6, max_size=6), max_size=5), st.integers(1, 200))
def test_a_table_fits_and_keeps_what_is_always_shown(
    columns: list[Column], rows: list[list[str]], width: int
) -> None:
    found = table(columns, [[Cell(word) for word in row[: len(columns)]] for row in rows], width)
    always = [column.heading for column in columns if column.goes == 0]
    assert len(found.lines) == len(rows) + 1
    assert all(columns[[one.heading for one in columns].index(heading)].goes for heading in found.hidden) or (
        len({*(one.heading for one in columns)}) < len(columns)
    )
    if width >= 3 * len(always):
        widths = {cells(text(line)) for line in found.lines}
        assert len(widths) == 1 and max(widths) <= width


@given(ANY_COLUMNS, st.lists(st.lists(TEXTS, min_size=6, max_size=6), max_size=5))
def test_without_a_width_nothing_is_shortened(columns: list[Column], rows: list[list[str]]) -> None:
    found = table(columns, [[Cell(word) for word in row[: len(columns)]] for row in rows], None)
    assert found.hidden == []
    for row, line in zip(rows, found.lines[1:], strict=True):
        assert all(word in text(line) for word in row[: len(columns)])


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
