"""Which lines are whose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.logs.lines import by_attempt, by_rank

TEXT = st.binary(max_size=20).map(lambda text: text.translate(None, b"\r\n"))
BLOCK = st.lists(TEXT, max_size=12).map(lambda lines: b"".join(line + b"\n" for line in lines))


class TestAttempts:
    def test_each_begins_with_the_script_s_word(self) -> None:
        block = b"a\ncastoff: attempt 1 begins\nb\n[0] castoff: attempt 7 begins\ncastoff: attempt 2 begins\n"
        assert list(by_attempt(block, 0)) == [
            (0, b"a\n"),
            (1, b"castoff: attempt 1 begins\nb\n[0] castoff: attempt 7 begins\n"),
            (2, b"castoff: attempt 2 begins\n"),
        ]

    def test_one_that_the_same_job_begins(self) -> None:
        word = b"castoff: attempt 0 failed: rank 1 on n1 failed; attempt 1 begins (restart 1 of 3)\n"
        assert list(by_attempt(b"a\n" + word + b"b\n", 0)) == [(0, b"a\n"), (1, word + b"b\n")]

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
