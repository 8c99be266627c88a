"""Which lines are whose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.logs import lines as module
from launcher.logs.lines import ECHO_PATIENCE, Echo, by_attempt, by_rank
from launcher.starters.local.streams import RankLines

TEXT = st.binary(max_size=20).map(lambda text: text.translate(None, b"\r\n"))
BLOCK = st.lists(TEXT, max_size=12).map(lambda lines: b"".join(line + b"\n" for line in lines))


def pieces(text: bytes, cuts: list[int]) -> Iterator[bytes]:
    """`text` cut at these places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    for begin, end in zip(places, [*places[1:], len(text)], strict=True):
        yield text[begin:end]


class TestAttempts:
    def test_each_begins_with_the_script_s_word(self) -> None:
        block = b"a\ncastoff: attempt 1 begins\nb\n[0] castoff: attempt 7 begins\ncastoff: attempt 2 begins\n"
        assert list(by_attempt(block, 0)) == [
            (0, b"a\n"),
            (1, b"castoff: attempt 1 begins\nb\n[0] castoff: attempt 7 begins\n"),
            (2, b"castoff: attempt 2 begins\n"),
        ]

    def test_after_half_a_line(self) -> None:
        block = b"loading...castoff: attempt 1 begins\nb\n"
        assert list(by_attempt(block, 0)) == [(1, block)]

    @given(BLOCK)
    def test_nothing_is_lost(self, block: bytes) -> None:
        block = block.replace(b"\x00", b"castoff: attempt 3 begins")
        assert b"".join(lines for _, lines in by_attempt(block, 0)) == block


class TestRanks:
    def test_of_merged_lines(self) -> None:
        block = b"castoff: 2 ranks\n[0] a\n[0] \n[1] b\n[x] c\n [0] d\n[0]e\n"
        assert list(by_rank(block)) == [
            (None, b"castoff: 2 ranks\n"),
            (0, b"a\n\n"),
            (1, b"b\n"),
            (None, b"[x] c\n [0] d\n[0]e\n"),
        ]

    @given(st.lists(st.tuples(st.integers(0, 3), TEXT)))
    def test_each_line_once_and_in_order(self, lines: list[tuple[int, bytes]]) -> None:
        block = b"".join(b"[%d] %s\n" % line for line in lines)
        got = [(rank, line) for rank, some in by_rank(block) for line in some.split(b"\n")[:-1]]
        assert got == lines


class TestEcho:
    @given(
        st.lists(st.tuples(st.booleans(), TEXT), max_size=40),
        st.lists(st.integers(0, 10_000)),
        st.lists(st.integers(0, 10_000)),
        st.booleans(),
    )
    def test_own_lines_come_once_and_in_order(
        self, lines: list[tuple[bool, bytes]], cuts: list[int], others: list[int], late: bool
    ) -> None:
        """Whatever is read first, and wherever the pieces end."""
        script = b"".join((b"own " if own else b"") + text + b"\n" for own, text in lines)
        first = b"".join(text + b"\n" for own, text in lines if not own)
        expected = b"".join(b"own " + text + b"\n" for own, text in lines if own)
        echo, whole, originals = Echo(), RankLines(b""), RankLines(b"")
        rest = pieces(first, others)
        if not late:
            for piece in rest:
                echo.expect(originals.feed(piece, 0.0))
        got = b""
        for piece in pieces(script, cuts):
            echo.take(whole.feed(piece, 0.0), 0.0)
            echo.expect(originals.feed(next(rest, b""), 0.0))
            got += echo.own(0.0)
        for piece in rest:
            echo.expect(originals.feed(piece, 0.0))
        assert got == b""
        assert echo.own(ECHO_PATIENCE) == expected
        assert not echo.waiting and echo.end() == b""

    def test_as_often_as_it_was_written(self) -> None:
        echo = Echo()
        echo.expect(b"same\nsame\n")
        echo.take(b"same\n" * 3, 0.0)
        assert echo.own(ECHO_PATIENCE) == b"same\n"

    def test_a_torn_line_costs_only_itself(self) -> None:
        """The script's own words in the middle of a line of the first rank's."""
        echo = Echo()
        echo.expect(b"one\ntwo\nthree\n")
        echo.take(b"one\ntsrun: error\nwo\nthree\n", 0.0)
        assert echo.own(ECHO_PATIENCE) == b"tsrun: error\nwo\n"

    def test_what_waits_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_WAITING", 3)
        echo = Echo()
        echo.take(b"1\n2\n3\n4\n5\n", 0.0)
        assert echo.own(0.0) == b"1\n2\n"
        echo.take(b"6\n", 1.0)
        assert echo.own(1.0) == b"3\n"
        assert echo.own(ECHO_PATIENCE) == b"4\n5\n"
        assert echo.end() == b"6\n"
