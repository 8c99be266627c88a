"""Bars of what happened when: each to scale, and counted where there are many."""

from __future__ import annotations

from castoff.launcher.history.attempts import QUEUED, RUNNING, SETUP, Phase
from castoff.launcher.report.timeline import (
    FAILED,
    MARK,
    Bar,
    Span,
    bars,
    census,
    marked_failed,
    most_at_once,
    span,
    sums,
    words,
)

TWO = [Phase(QUEUED, 0, 50), Phase(RUNNING, 50, 100), Phase(QUEUED, 100, 150), Phase(RUNNING, 150, None)]


def test_the_whole_time() -> None:
    assert span([], 10) is None and span([[]], 10) is None
    assert span([TWO], 200) == (0, 200)
    assert span([[Phase(SETUP, 5, 5)]], 200) == (5, 6)  # never none at all


def test_phases_are_bars_to_scale_with_a_mark_between_attempts() -> None:
    assert bars(TWO, Span(0, 200), 200) == [
        Bar(QUEUED, 0, 250),
        Bar(RUNNING, 250, 250),
        Bar(QUEUED, 500, 250),
        Bar(RUNNING, 750, 250),
        Bar(MARK, 500, 2),
    ]


def test_what_is_short_is_seen_and_what_took_no_time_is_not() -> None:
    some = [Phase(SETUP, 0, 0), Phase(RUNNING, 999_999, 1_000_000)]
    assert bars(some, Span(0, 1_000_000), 0) == [Bar(RUNNING, 999, 1)]


def test_marks_of_many_attempts_would_hide_them() -> None:
    many = [Phase(RUNNING, at, at + 1) for at in range(100)]
    assert {one.kind for one in bars(many, Span(0, 100), 0)} == {RUNNING}


def test_many_members_are_counted() -> None:
    members = [[Phase(QUEUED, 0, 10 * number), Phase(RUNNING, 10 * number, 1000)] for number in range(1, 51)]
    found = census(members, Span(0, 1000), 0)
    assert most_at_once(members, 0) == 50
    first, last = (([bar for bar in found if bar.x == x]) for x in (0, 992))
    assert first == [Bar(QUEUED, 0, 8, 0, 100)]
    assert last == [Bar(RUNNING, 992, 8, 0, 100)]
    for x in {bar.x for bar in found}:
        assert abs(sum(bar.height for bar in found if bar.x == x) - 100) < 0.1


def test_members_that_wait_do_not_run() -> None:
    """As with a limit of members at a time."""
    members = [
        [
            Phase(QUEUED, 0, 10 * at),
            Phase(SETUP, 10 * at, 10 * at + 5),
            Phase(RUNNING, 10 * at + 5, 10 * at + 10),
        ]
        for at in range(99)
    ]
    assert most_at_once(members, 0) == 1
    assert most_at_once([*members, [Phase(RUNNING, 15, None)]], 1000) == 2
    assert most_at_once([], 0) == 0


def test_the_last_phase_of_a_failed_attempt_is_marked() -> None:
    assert marked_failed(TWO[:2]) == [TWO[0], Phase(FAILED, 50, 100)]
    assert marked_failed(TWO[:1]) == TWO[:1] and marked_failed([]) == []
    both = [*marked_failed(TWO[:2]), *marked_failed(TWO[2:])]
    assert [bar.kind for bar in bars(both, Span(0, 200), 200)] == [QUEUED, FAILED, QUEUED, FAILED, MARK]
    assert sums([both], 200) == {QUEUED: 100, FAILED: 100}


def test_in_words() -> None:
    assert sums([TWO], 200) == {QUEUED: 100, RUNNING: 100}
    assert words(TWO[2:], 160) == "queued 50s, running 10s so far"
