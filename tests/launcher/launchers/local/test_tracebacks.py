"""An error of several ranks is shown whole once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.launchers.local.streams import LINE_PATIENCE, RankLines
from castoff.launcher.launchers.local.tracebacks import ErrorLines, SeenErrors

TRACEBACK = (
    b"Traceback (most recent call last):\n"
    b'  File "/me/train.py", line 3, in <module>\n'
    b"    import absent\n"
    b"ModuleNotFoundError: No module named 'absent'\n"
)
SHORT = b"ModuleNotFoundError: No module named 'absent' (as on rank 0)\n"


def ranks(count: int) -> list[ErrorLines]:
    seen = SeenErrors()
    return [ErrorLines(b"[%d] " % rank, seen=seen) for rank in range(count)]


def labelled(rank: int, lines: bytes) -> bytes:
    return b"".join(b"[%d] %s" % (rank, line) for line in lines.splitlines(keepends=True))


def test_the_others_show_its_last_line() -> None:
    first, second, third = ranks(3)
    assert first.feed(b"begins\n" + TRACEBACK, 0.0) == labelled(0, b"begins\n" + TRACEBACK)
    around = b"begins\n%sends\n"
    assert second.feed(around % TRACEBACK, 0.0) == labelled(1, around % SHORT)
    assert third.feed(TRACEBACK.replace(b"absent", b"other"), 0.0).count(b"\n") == 4


def test_it_is_not_torn_by_those_of_others() -> None:
    """Python writes a line at a time."""
    first, second = ranks(2)
    shown = b""
    for line in TRACEBACK.splitlines(keepends=True):
        shown += first.feed(line, 0.0) + second.feed(line, 0.0)
    assert shown == labelled(0, TRACEBACK) + labelled(1, SHORT)


def test_a_rank_that_has_it_again_shows_it_again() -> None:
    first, second = ranks(2)
    assert first.feed(2 * TRACEBACK, 0.0) == labelled(0, 2 * TRACEBACK)
    assert second.feed(2 * TRACEBACK, 0.0) == labelled(1, 2 * SHORT)


def test_torchs_prefix_of_each_line_is_not_part_of_it() -> None:
    first, second = ranks(2)
    marked = [b"".join(b"[rank%d]: " % rank + line for line in TRACEBACK.splitlines(True)) for rank in (0, 1)]
    assert first.feed(marked[0], 0.0) == labelled(0, marked[0])
    assert second.feed(marked[1], 0.0) == labelled(1, b"[rank1]: " + SHORT)


def test_what_torch_quotes_of_a_loader_s_worker_is_shortened_too() -> None:
    first, second = ranks(2)
    caught = b"%sCaught ModuleNotFoundError in DataLoader worker process 0.\nOriginal %s"
    whole = caught % (TRACEBACK.replace(b"No module named 'absent'\n", b""), TRACEBACK)
    assert first.feed(whole, 0.0) == labelled(0, whole)
    above = (
        b"ModuleNotFoundError: Caught ModuleNotFoundError in DataLoader worker process 0. (as on rank 0)\n"
    )
    assert second.feed(whole, 0.0) == labelled(1, above + SHORT)


def test_one_that_does_not_end_is_shown_after_a_while() -> None:
    (only,) = ranks(1)
    begin = b"".join(TRACEBACK.splitlines(keepends=True)[:2])
    assert only.feed(begin, 7.0) == b""
    assert only.due() == 7.0 + LINE_PATIENCE
    assert only.flush() == labelled(0, begin)
    assert only.due() is None
    assert only.feed(b"more\n", 8.0) == labelled(0, b"more\n")


def test_a_log_without_labels_and_one_that_was_shown_above() -> None:
    seen = SeenErrors()
    seen.shown_above([b"noise", *TRACEBACK.splitlines()])
    log = ErrorLines(b"", seen=seen, where=b"as on rank 1")
    assert log.feed(TRACEBACK, 0.0) == SHORT.replace(b"as on rank 0", b"shown above")


def test_those_of_long_ago_are_forgotten() -> None:
    first, second = ranks(2)
    for number in range(3000):
        first.feed(TRACEBACK.replace(b"3", b"%d" % number), 0.0)
    assert second.feed(TRACEBACK.replace(b"3", b"0"), 0.0).count(b"\n") == 4
    assert second.feed(TRACEBACK.replace(b"3", b"2999"), 0.0).count(b"\n") == 1


_LINES = [
    *TRACEBACK.splitlines(keepends=True),
    *(b"[rank1]: " + line for line in TRACEBACK.splitlines(keepends=True)),
    *(b"\n", b"  x\r\n", b"\xc3\xa9"),
]


@given(st.lists(st.sampled_from(_LINES)), st.data())
def test_of_one_rank_nothing_is_lost_however_it_comes(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(lines)
    (log,) = ranks(1)
    shown, left = b"", text
    while left:
        count = data.draw(st.integers(1, len(left)))
        shown += log.feed(left[:count], 0.0)
        left = left[count:]
    shown += log.flush()
    plain = RankLines(b"[0] ")
    expected = plain.feed(text, 0.0) + plain.flush()
    assert sorted(shown.splitlines()) == sorted(expected.splitlines())


@pytest.mark.parametrize("header", [b" Traceback (most recent call last):\n", b"Traceback\n"])
def test_what_only_looks_like_one_is_shown_at_once(header: bytes) -> None:
    (only,) = ranks(1)
    assert only.feed(header, 0.0) == labelled(0, header)
