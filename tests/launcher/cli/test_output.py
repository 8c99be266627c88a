"""Values of options that several verbs take."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import click
import pytest

from castoff.launcher.cli.output import age, duration, meant_duration

CONTEXT = click.Context(click.Command("x"))
OPTION = click.Option(["--since"])


def since(text: str) -> float:
    """The time that an age or a date means."""
    ago = age(CONTEXT, OPTION, text)
    assert ago is not None
    return time.time() - ago


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("2020-02-03", datetime(2020, 2, 3)),
        ("2020-02-03T04:05", datetime(2020, 2, 3, 4, 5)),
        ("2020-02-03 04:05:06", datetime(2020, 2, 3, 4, 5, 6)),
    ],
)
def test_a_date_is_an_age(text: str, date: datetime) -> None:
    assert abs(since(text) - date.timestamp()) < 60


@pytest.mark.parametrize(("word", "days"), [("today", 0), ("yesterday", 1), ("Yesterday", 1)])
def test_a_day_begins_at_midnight(word: str, days: int) -> None:
    begun = datetime.fromtimestamp(since(word))
    assert (begun.hour, begun.date()) == (0, (datetime.now() - timedelta(days)).date())


def test_an_age_is_a_duration() -> None:
    assert age(CONTEXT, OPTION, "7d") == duration(CONTEXT, OPTION, "7d") == 604800
    assert age(CONTEXT, OPTION, None) is duration(CONTEXT, OPTION, None) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2 hours", "; use 2h"),
        ("30min", "; use 30m"),
        ("1w", "; use 7d"),
        ("2 months", "; use 60d"),
        ("soon", ""),
        ("5", ""),
        ("3 parsecs", ""),
    ],
)
def test_what_people_write_is_translated(text: str, meant: str) -> None:
    assert meant_duration(text) == meant
