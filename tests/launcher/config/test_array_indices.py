"""An array's indices as text and as numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff import JobSpec
from castoff.launcher.config.array_indices import (
    INDICES_PATTERN,
    index_list,
    indices,
    members_range,
    problem,
    runs,
)
from castoff.launcher.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("1,3-5,10-20:2", [1, 3, 4, 5, 10, 12, 14, 16, 18, 20]),
        ("5,1, 3-4 ,3", [1, 3, 4, 5]),
        ("0-9:4", [0, 4, 8]),
        ("3-3", [3]),
        ("4000000", [4_000_000]),
    ],
)
def test_what_is_taken(text: str, numbers: list[int]) -> None:
    assert problem(text) is None
    assert indices(text) == numbers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3-1", "holds 3-1, which descends: write 1-3"),
        ("9-1:2", "holds 9-1:2, which descends: write 1-9:2"),
        ("1,,2", "is '1,,2', with nothing before, after or between commas: write 1,2"),
        ("1,", "write 1"),
        (",", "write 0-9"),
        ("1-5:0", "holds 1-5:0, a step of 0: write 1-5, or"),
        ("-1", "none below 0, joined by commas, as in 1,3-5,10-20:2"),
        ("07", "write 7; in the program, printf %02d $CASTOFF_ARRAY_INDEX pads it"),
        ("001-010", "holds 001, but an index is a plain number: write 1; in the program, printf %03d"),
        ("1-5%2", "is '1-5%2', but takes no %: write 1-5 and array.max_concurrent: 2"),
        ("1-", "holds '1-', but takes numbers and ranges, joined"),
        ("1:2", "holds '1:2', but takes numbers and ranges, joined"),
        ("a-c", "holds 'a-c', but"),
        ("1 2", "holds '1 2', but"),
        ("١", "holds '١', but"),
        ("4000001", "holds 4000001, but an index can be at most 4000000"),
        ("99999999999999999999", "at most"),
        ("0-1000000", "has 1000001 members, but an array can have at most 1000000"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    assert said in (problem(text) or "nothing")
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["x"], "array": {"indices": text}})
    assert [found.path for found in caught.value.problems] == ["array.indices"]


@given(st.sets(st.integers(0, 60), min_size=1) | st.sets(st.integers(0, 4_000_000), min_size=1, max_size=30))
def test_there_and_back(numbers: set[int]) -> None:
    text = index_list(sorted(numbers))
    assert problem(text) is None and re.search(INDICES_PATTERN, text)
    assert indices(text) == sorted(numbers)
    assert [index for run in runs(sorted(numbers)) for index in run] == sorted(numbers)


@given(st.text(alphabet="0123456789,-: %a", max_size=12))
def test_whatever_is_taken_can_be_read(text: str) -> None:
    if problem(text) is None:
        found = indices(text)
        assert found == sorted({*found}) and found
        assert indices(index_list(found)) == found
    elif text:
        with pytest.raises(InvalidInput):
            JobSpec.of({"command": ["x"], "array": {"indices": text}})


def test_members_in_words() -> None:
    assert members_range([0, 1, 2]) == "0 to 2"
    assert members_range([1, 2, 3]) == "1-3"


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (
            {},
            {
                "array.count": 'is missing: write count: 8, or indices: "1,3-5" for numbers of your own, '
                "or parameters with their values"
            },
        ),
        ({"max_concurrent": 2}, {"array.count": 'is missing: write count: 8, or indices: "1,3-5"'}),
        ({"count": 3, "indices": "1-3"}, {"array.indices": "excludes array.count: indices already"}),
    ],
)
def test_count_or_indices(array: dict[str, Any], said: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        JobSpec.of({"command": ["x"], "array": array})
    found = {one.path: one.message for one in caught.value.problems}
    assert found.keys() == said.keys()
    assert all(found[path].startswith(words) for path, words in said.items())


def test_a_number_is_an_index() -> None:
    spec = JobSpec.of({"command": ["x"], "array": {"indices": 7, "max_concurrent": 2}})
    assert spec.array is not None
    assert (spec.array.members, spec.array.size, spec.array.own_indices) == ([7], 1, "7")


def test_those_from_0_on_are_a_count() -> None:
    spec = JobSpec.of({"command": ["x"], "array": {"indices": "2,0-1"}})
    assert spec.array is not None and spec.array.own_indices is None and spec.array.size == 3
