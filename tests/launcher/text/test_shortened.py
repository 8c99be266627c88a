"""Texts cut to cells of a terminal, and ids that are found as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.text.shortened import (
    cells,
    cut,
    cut_all,
    cut_ids,
    cut_middles,
    first,
    last,
    like,
    padded,
)

TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "M")) | st.sampled_from("…网e-"))
NAMES = st.text("abcdefgh-_.0123456789网", min_size=1, max_size=60)
IDS = st.builds("{}-20261120-1015{:02d}-{:04x}".format, NAMES, st.integers(0, 59), st.integers(0, 0xFFFF))


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("train", 5), ("é…█", 3), ("网络", 4), ("x🚀", 3), ("e\u0301", 1)],
)
def test_wide_characters_take_two_cells(text: str, width: int) -> None:
    assert cells(text) == width
    assert padded(text, 6) == text + " " * (6 - width) and padded(text, 6, right=True).endswith(text)


@given(TEXTS, st.integers(0, 80))
def test_what_is_cut_fits_and_says_so(text: str, width: int) -> None:
    found = cut(text, width)
    assert cells(found) <= width
    assert found == text if cells(text) <= width else width == 0 or found.endswith("…")
    assert text.startswith(first(text, width)) and cells(first(text, width)) <= width
    assert text.endswith(last(text, width)) and cells(last(text, width)) <= width


@given(st.lists(TEXTS, max_size=4), st.integers(0, 80))
def test_every_way_of_cutting_fits(texts: list[str], width: int) -> None:
    for way in (cut_all, cut_middles, cut_ids):
        found = way(texts, width)
        assert len(found) == len(texts) and all(cells(one) <= width for one in found)
        assert way(texts, 10_000) == texts


@given(st.lists(IDS, min_size=1, max_size=4), st.integers(6, 90))
def test_a_shown_id_means_its_run(ids: list[str], width: int) -> None:
    for run_id, shown in zip(ids, cut_ids(ids, width), strict=True):
        assert like(shown).fullmatch(run_id)


def test_what_remains_of_an_id() -> None:
    run_id = "causets-baseline-of-november-seed42-20261120-101500-abcd"
    shown = [cut_ids([run_id], width)[0] for width in (56, 55, 41, 40, 25, 16, 12, 6)]
    assert shown == [
        run_id,
        "causets-baseline-of-november-seed42..abcd",
        "causets-baseline-of-november-seed42..abcd",
        "causets-ba..ine-of-november-seed42..abcd",
        "cause..ember-seed42..abcd",
        "ca..seed42..abcd",
        "c..d42..abcd",
        "..abcd",
    ]
    assert cut_ids(["by-hand-1234567", run_id], 14) == ["by-h..-1234567", "ca..ed42..abcd"]
    assert cut_middles(["data/november/sets/train.h5"], 20) == ["data/n…sets/train.h5"]


def test_a_reference_without_marks_is_a_beginning() -> None:
    assert like("train").fullmatch("train-20261120-101500-abcd")
    assert not like("rain").fullmatch("train-20261120-101500-abcd")
    assert not like("t..abcd").fullmatch("train-20261120-101500-abce")
    assert like("train…abcd").fullmatch("train-20261120-101500-abcd")
