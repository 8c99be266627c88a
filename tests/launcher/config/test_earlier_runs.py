"""`{NAME.dir}` in texts: what is a reference, and that everything else stays as it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff import JobSpec
from castoff.launcher.config.earlier_runs import referred, split


def shown(text: str) -> str:
    return "".join(
        literal + (f"<{name}>" if name else "") for literal, name in split(text, ["prepare", "a.b"])
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{prepare.dir}", "<prepare>"),
        ("--data={prepare.dir}/x:{a.b.dir}", "--data=<prepare>/x:<a.b>"),
        ("{{prepare.dir}}", "{prepare.dir}"),
        ("{{{prepare.dir}}}", "{<prepare>}"),
        ("${prepare.dir}", "${prepare.dir}"),
        ("{other.dir} {prepare} {prepare.dirs} { prepare.dir } {}", None),
        ('{"a": {"b": 1}} ${x:-{y}} awk \'{ print $1 }\' {{other.dir}}', None),
    ],
)
def test_references(text: str, expected: str | None) -> None:
    assert shown(text) == (text if expected is None else expected)


@given(st.text(alphabet="{}$a.b dir\n\"'"))
def test_without_names_nothing_changes(text: str) -> None:
    assert [*split(text, [])] == [(text, None)]


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_json_stays(data: dict[str, int | str]) -> None:
    text = json.dumps(data)
    if ".dir}" not in text:
        assert shown(text) == text


def test_only_what_a_job_waits_for_is_referred_to() -> None:
    fields = {
        "command": ["cat", "{b.dir}", "{c.dir}", "{{a.dir}}"],
        "env": {"X": "{a.dir}", "Y": None},
        "workdir": "{d.dir}",
        "after": {"afterok": ["a", "b"], "after": ["d"]},
    }
    assert referred(JobSpec.of(fields)) == ["b", "a", "d"]
