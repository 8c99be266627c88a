"""How lines look: with labels, in colours, on a terminal, as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from castoff.launcher.launchers.local.streams import for_terminal
from castoff.launcher.logs.failures import FailedRank
from castoff.launcher.logs.lines import Source
from castoff.launcher.logs.show import End, Json, Show, Text
from castoff.launcher.runs.records import Failure

FAILED = FailedRank(Failure(code=9, rank=2, host="n1", time=5.0), Path("/logs/rank-00002.log"))


PIECES = st.sampled_from([b"[1] ", b"[2] ", b"[03] ", b"[", b"\x1b", b"[2J", b"[3m", b"\xc2\x80", b"a"])
MERGED = st.lists(st.lists(PIECES, max_size=4), max_size=4).map(
    lambda lines: b"".join(b"".join(line) + b"\n" for line in lines)
)


def text(*, several: bool = False, terminal: bool = False, labels: bool = True) -> Text:
    return Text(several=several, terminal=terminal, colours=terminal, labels=labels)


class TestText:
    @pytest.mark.parametrize(
        ("source", "one", "several"),
        [
            (Source(3, 1, rank=12), b"[12] ", b"[3.1:12] "),
            (Source(3, 1, node=4), b"[node 4] ", b"[3.1:node 4] "),
            (Source(3, 1), b"", b"[3.1] "),
            (Source(0, 0, rank=0), b"[0] ", b"[0.0:0] "),
        ],
    )
    def test_labels(self, source: Source, one: bytes, several: bytes) -> None:
        assert text().lines(source, b"a\n\nb\n") == one + b"a\n" + one + b"\n" + one + b"b\n"
        assert text(several=True).lines(source, b"a\n") == several + b"a\n"
        assert text(several=True, labels=False).lines(source, b"a\n") == b"a\n"

    def test_merged_lines_stay_as_they_are_or_get_the_member(self) -> None:
        block = b"castoff: hello\n[0] a\n[1] \xff\x1b[2J\n"
        assert text().merged(Source(3, 1), block) == block
        assert text(several=True).merged(Source(3, 1), block) == (
            b"[3.1] castoff: hello\n[3.1:0] a\n[3.1:1] \xff\x1b[2J\n"
        )

    def test_jobs_are_named_and_have_colours(self) -> None:
        show = Text(several=False, terminal=False, colours=False, job="train")
        assert (
            show.merged(Source(0, 0), b"castoff: hello\n[1] a\n") == b"[train] castoff: hello\n[train:1] a\n"
        )
        assert show.failure(Source(0, 0), FAILED, []).startswith(b"--- train: rank 2 on n1 failed first")
        show = Text(several=True, terminal=True, colours=True, job="train", place=1)
        assert show.lines(Source(3, 1, rank=12), b"a\n") == b"\x1b[33m[train:3.1:12]\x1b[0m a\n"
        (line,) = json.loads(b"[%s]" % Json("train").lines(Source(0, 0), b"a\n"))
        assert (line["event"], line["job"], line["text"]) == ("line", "train", "a")

    @given(st.booleans(), st.booleans(), st.booleans(), MERGED)
    @example(False, False, True, b"[1] a\n[03] b\n")
    @example(False, True, True, b"[1] a\x1b[3m\n")
    def test_merged_lines_are_shown_as_those_of_each_rank(
        self, several: bool, terminal: bool, labels: bool, block: bytes
    ) -> None:
        show = text(several=several, terminal=terminal, labels=labels)
        assert show.merged(Source(3, 1), block) == Show.merged(show, Source(3, 1), block)

    def test_each_rank_has_a_colour_on_a_terminal(self) -> None:
        show = text(terminal=True)
        shown = show.merged(Source(0, 0), b"castoff: hello\n[0] a\n[1] b\n")
        assert shown == b"castoff: hello\n\x1b[36m[0]\x1b[0m a\n\x1b[33m[1]\x1b[0m b\n"
        assert show.lines(Source(0, 0, rank=1), b"b\n") == b"\x1b[33m[1]\x1b[0m b\n"

    def test_a_failure_is_set_off(self) -> None:
        excerpt = [b"Traceback", b"Error: \x1b[2Jx"]
        assert text().failure(Source(0, 0), FAILED, excerpt) == (
            b"--- rank 2 on n1 failed first: exit code 9 ---\nTraceback\nError: \x1b[2Jx\n--- all ranks ---\n"
        )
        shown = text(several=True, terminal=True).failure(Source(3, 1), FAILED, excerpt)
        assert shown == (
            b"\x1b[1;31m--- 3.1: rank 2 on n1 failed first: exit code 9 ---\x1b[0m\n"
            b"Traceback\nError: x\n\x1b[1;31m--- all ranks ---\x1b[0m\n"
        )


class TestTerminal:
    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            ("plain äö🏖\ttab".encode(), "plain äö🏖\ttab".encode()),
            (b"\x1b[31mred", b"\x1b[31mred\x1b[0m"),
            (b"\x1b[38;2;1;2;3mred\x1b[0m", b"\x1b[38;2;1;2;3mred\x1b[0m\x1b[0m"),
            (b"\x1b[2J\x1b[1;1H\x1b[?1049hcleared", b"cleared"),
            (b"\x1b]0;title\x07a\x1b]52;c;aGk=\x1b\\b", b"ab"),
            (b"\x1b]0;never ends", b""),
            (b"\x1bP+q544e\x1b\\a", b"a"),
            (b"\x1bc\x1b(0a", b"a"),
            (b"bell\x07 back\x08 del\x7f nul\0", b"bell^G back^H del^? nul^@"),
            ("c1 \x9b2J \x85".encode(), b"c1 2J "),
            (b"\xff\x9b bytes", b"\xff\x9b bytes"),
            (b"cut \x1b[3", b"cut 3"),
            (b"cut \x1b", b"cut ^["),
        ],
    )
    def test_colours_pass_and_nothing_else(self, line: bytes, shown: bytes) -> None:
        assert for_terminal(line + b"\nnext\n") == shown + b"\nnext\n"


def test_a_restart_that_fails_alike_is_shown_whole() -> None:
    """Also where the first attempt's lines were read before its failure was on record."""
    show = text()
    traceback = [b"Traceback (most recent call last):", b'  File "x"', b"ValueError: no"]
    whole = b"\n".join(traceback) + b"\n"
    show.whole_lines(0).feed(b"".join(b"[2] " + line + b"\n" for line in traceback), 0.0)
    assert b"ValueError: no (shown above)" in show.failure(Source(0, 0), FAILED, traceback)
    assert whole in show.failure(Source(0, 1), FAILED, traceback)


class TestJson:
    def events(self, shown: bytes) -> list[dict[str, object]]:
        return [json.loads(line) for line in shown.splitlines()]

    def test_lines(self) -> None:
        reported = self.events(Json().merged(Source(3, 1), b"castoff: hello\n[2] \xff a\n"))
        place = {"event": "line", "member": 3, "attempt": 1}
        assert reported == [
            {**place, "rank": None, "node": None, "text": "castoff: hello"},
            {**place, "rank": 2, "node": None, "text": "\ufffd a"},
        ]
        (of_node,) = self.events(Json().lines(Source(3, 1, node=4), b"x\n"))
        assert (of_node["node"], of_node["rank"]) == (4, None)

    def test_failure_and_end(self) -> None:
        (reported,) = self.events(Json().failure(Source(3, 1), FAILED, [b"one", b"two"]))
        assert (reported["event"], reported["member"], reported["rank"], reported["code"]) == (
            "failure",
            3,
            2,
            9,
        )
        assert (reported["log"], reported["excerpt"]) == ("/logs/rank-00002.log", "one\ntwo\n")
        assert self.events(Json().end(End("x", "failed", 9, None, FAILED))) == [
            {"event": "end", "id": "x", "ending": "failed", "code": 9, "reason": None}
        ]
