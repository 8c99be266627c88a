"""Text of logs on a page: no colours, no cursor moves, nothing that cannot be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.report.cells import cut, log_text, visible, without_colours


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[38;5;208mx\x1b[K\x1b[2J\x1b[?25l", "x"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        ("\x1bP1$r\x1b\\c\x1b(Bd\x1b7\x1b=e", "cde"),
        ("[31m stays", "[31m stays"),
    ],
)
def test_control_sequences_go(text: str, plain: str) -> None:
    assert without_colours(text) == plain


def test_what_cannot_be_seen_is_written_out() -> None:
    hostile = "a\u202eb\u2028c\x00d\x08e\ud800f"
    assert visible(hostile) == "a\\u202eb\\u2028c\\x00d\\x08e\\ud800f"
    assert visible("two\nlines\tand ünïcode 🦊") == "two\nlines\tand ünïcode 🦊"


def test_lines_of_a_log() -> None:
    assert log_text([b"\x1b[32ma\x1b[0m\tb\r", b"not\xffutf8", b"\x07"]) == "a       b\nnot\ufffdutf8\n\\x07"


@given(st.binary(max_size=60))
def test_nothing_of_a_log_moves_a_cursor(line: bytes) -> None:
    text = log_text([line])
    assert "\x1b" not in text
    text.encode()  # and it can be written
    assert all(c.isprintable() or c in "\n\t\u00a0\u202f\u3000" for c in text)


def test_a_long_text_says_where_the_rest_is() -> None:
    text = "\n".join(map(str, range(10)))
    assert cut(text, 10, "x") == text
    assert cut(text, 3, "job.yaml") == "0\n1\n2\n… 7 more lines: job.yaml"
