"""Plain data as one line of YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.text.quoting import yaml_value
from castoff.launcher.typed.document import Document

WORDS = [
    "",
    "null",
    "Yes",
    "24h",
    "1e5",
    "0x1F",
    "1_000",
    "12:30",
    "2026-11-29",
    "a, b",
    "a,b",
    "a: b",
    "- c",
    "x #y",
]
WORDS += [
    " a",
    "a ",
    "/scratch/a b",
    "{a}",
    "[a]",
    "&a",
    "*a",
    "!a",
    "'",
    '"',
    "\\",
    "é",
    "two\nlines",
    "\x1b",
]
TEXTS = st.one_of(st.sampled_from(WORDS), st.text(st.characters(codec="utf-8"), max_size=8))
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(-(10**15), 10**15), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)


@given(VALUES)
def test_whatever_it_is(value: Any) -> None:
    """castoff reads the same value again, from one line that a terminal can show."""
    line = yaml_value(value)
    assert line.isprintable()
    assert Document.parse(f"field: {line}  # why\n", "t").data == {"field": value}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("show partition gpu", "show partition gpu"),
        (["0-31", "x"], '["0-31", x]'),
        ([{"max_nodes": 4, "max_walltime": "24h"}], "[{max_nodes: 4, max_walltime: 24h}]"),
        ({"a b": None, "no": False}, '{"a b": null, "no": false}'),
    ],
)
def test_only_what_needs_quotes_has_them(value: Any, line: str) -> None:
    assert yaml_value(value) == line
    assert yaml.safe_load(line) == value
