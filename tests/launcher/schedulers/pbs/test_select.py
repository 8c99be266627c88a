"""The text of -l select, there and back, and as another reader has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.schedulers.pbs.qsub_directives import directive
from castoff.launcher.schedulers.pbs.select import Chunk, parse_select, quoted, select_text
from tests.launcher.scripts.readers import pbs_chunks, read_pbs

VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="'\"&+"), min_size=1)
CHUNKS = st.lists(
    st.builds(
        Chunk,
        st.integers(1, 99),
        st.dictionaries(
            st.from_regex("[a-z][a-z0-9_-]{0,8}", fullmatch=True),
            VALUES.map(lambda text: text.strip(" ,")).filter(bool),
            max_size=3,
        ),
    ),
    min_size=1,
    max_size=3,
)


@given(CHUNKS)
def test_what_is_written_is_what_is_read(chunks: list[Chunk]) -> None:
    text = select_text(chunks)
    assert parse_select(text) == chunks
    ((name, value),) = read_pbs(f"#PBS {directive('select', text)}\n")
    assert (name, value) == ("select", text)
    assert pbs_chunks(str(value)) == [dict(one.resources) for one in chunks]


# What qsub of OpenPBS 23.06.06 and cd7ab5e takes, and what the server makes of it (schedselect).
@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("2", [Chunk(2, {})]),
        ("ncpus=1", [Chunk(1, {"ncpus": "1"})]),
        ("2:ncpus=8:ngpus=1+1:mem=64gb", [Chunk(2, {"ncpus": "8", "ngpus": "1"}), Chunk(1, {"mem": "64gb"})]),
        ("1:note=\"a b+c:d\":x='y'", [Chunk(1, {"note": "a b+c:d", "x": "y"})]),
        ("1:note=a=b", [Chunk(1, {"note": "a=b"})]),
        (" 2 : ncpus = 8 + 1", [Chunk(2, {"ncpus": "8"}), Chunk(1, {})]),
        ("0:ncpus=1+1:ncpus=1", [Chunk(0, {"ncpus": "1"}), Chunk(1, {"ncpus": "1"})]),
        ("1:NCPUS=1:Model=cpu", [Chunk(1, {"NCPUS": "1", "Model": "cpu"})]),
    ],
)
def test_what_qsub_takes(text: str, chunks: list[Chunk]) -> None:
    assert parse_select(text) == chunks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a select specification"),
        ("1:ncpus=1+", "is not a select specification"),
        ("+1", "is not a select specification"),
        ('1:note="a', "is not a select specification"),
        ("1:ncpus", "from 'ncpus' on"),
        ("1:note=", "from 'note=' on"),
        ("1:", "from '' on"),
        ("1:ncpus=1:NCPUS=2", "asks for NCPUS twice"),
        ("2ncpus=1", "from '2ncpus=1' on"),
    ],
)
def test_what_qsub_refuses(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_select(text)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        chunks = parse_select(text)
    except ValueError:
        return
    assert chunks and all(one.number >= 0 for one in chunks)


@pytest.mark.parametrize("value", ["", "it's", 'a"b', "a&b", "é", "a\tb", " a", "a ", "a,", "a\n"])
def test_a_value_that_pbs_cannot_hold(value: str) -> None:
    with pytest.raises(ValueError, match="PBS takes plain ASCII without quotes"):
        quoted(value)


@pytest.mark.parametrize(
    ("value", "written"), [("a:b", '"a:b"'), ("mil_ait", "mil_ait"), ("a b", '"a b"'), ("a)b", '"a)b"')]
)
def test_quotes_stand_where_pbs_needs_them(value: str, written: str) -> None:
    assert quoted(value) == written


def test_a_plus_crashes_its_scheduler() -> None:
    with pytest.raises(ValueError, match=r"PBS's scheduler crashes at a \+ there"):
        quoted("a+b")
