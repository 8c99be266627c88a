from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.launcher.config.quantities import (
    CPULIST_PATTERN,
    DURATION_PATTERN,
    MEMORY_PATTERN,
    clock,
    cpulist,
    cpus,
    seconds,
    size,
    timeout,
)
from castoff.launcher.text.words import size_words


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("00:30:00", 1800),
        ("1:00:00", 3600),
        ("168:00:00", 604800),
        ("1-12:00:00", 129600),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d12h", 129600),
        ("1d2h3m4s", 93784),
        ("90m", 5400),
        ("0s", 0),
    ],
)
def test_durations(text: str, total: int) -> None:
    assert re.search(DURATION_PATTERN, text)
    assert seconds(text) == total


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "30",
            "30:00",
            "1:2:3",
            "00:60:00",
            "00:00:60",
            "1m1h",
            "1.5h",
            "-1h",
            "1 h",
            "1h ",
            " 1h",
            "h",
        ),
        # What a scheduler would get, were Python's $ and \d taken at their word:
        *("1h\n", "00:30:00\n", "٣m", "٠٠:٣٠:٠٠", "1h\x00"),
    ],
)
def test_invalid_durations_are_refused(text: str) -> None:
    assert not re.search(DURATION_PATTERN, text)
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


@given(st.integers(0, 9999 * 3600))
def test_a_clock_reads_back(total: int) -> None:
    text = clock(total)
    assert re.search(DURATION_PATTERN, text)
    assert seconds(text) == total


@given(st.text(alphabet="0123456789dhms:-\n ", max_size=12))
@settings(max_examples=400)
def test_the_pattern_takes_exactly_what_is_read(text: str) -> None:
    try:
        seconds(text)
    except ValueError:
        assert not re.search(DURATION_PATTERN, text)
    else:
        assert re.search(DURATION_PATTERN, text)


@pytest.mark.parametrize(
    ("text", "good"),
    [("64G", True), ("1K", True), ("512M", True), ("2T", True)]
    + [(bad, False) for bad in ("", "64", "0G", "064G", "64g", "64GB", "1.5G", "-1G", "64G\n", "١G")],
)
def test_memory(text: str, good: bool) -> None:
    assert bool(re.search(MEMORY_PATTERN, text)) is good


@given(st.sets(st.integers(0, 400), min_size=1))
def test_a_cpu_list_reads_back(cores: set[int]) -> None:
    text = cpulist(sorted(cores))
    assert re.search(CPULIST_PATTERN, text)
    assert cpus(text) == sorted(cores)


def test_a_cpu_list_is_as_short_as_a_person_would_write_it() -> None:
    assert cpulist([*range(1, 52), *range(53, 104)]) == "1-51,53-103"
    assert cpulist([0, 52]) == "0,52"
    assert cpulist([3]) == "3"
    assert cpulist([]) == ""


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,", ",1", "1-2-3", "0-51\n", "1 2"])
def test_invalid_cpu_lists_do_not_match(text: str) -> None:
    assert not re.search(CPULIST_PATTERN, text)


@pytest.mark.parametrize(("text", "total"), [("1K", 1024), ("256M", 2**28), ("3G", 3 * 2**30), ("2T", 2**41)])
def test_sizes(text: str, total: int) -> None:
    assert re.search(MEMORY_PATTERN, text)
    assert size(text) == total


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1_300_000, "1.2 MiB"), (2**50, "1024.0 TiB")],
)
def test_sizes_in_words(count: int, words: str) -> None:
    assert size_words(count) == words


@pytest.mark.parametrize(("text", "expected"), [("5", 5.0), ("0.5", 0.5), ("5m", 300.0), ("1d12h", 129600.0)])
def test_a_timeout_without_a_unit_is_one_of_seconds(text: str, expected: float) -> None:
    assert timeout(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1", "inf", "1e3"])
def test_what_is_no_timeout(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        timeout(text)
