"""A bar is drawn where somebody watches, and nothing where nobody does."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from castoff.trainers.sedd.store import bar
from castoff.trainers.sedd.store.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(bar, "_REDRAW_EVERY", -1.0)
    before = threading.active_count()
    with Bar() as watched:
        for what in ("reading", "packing"):
            watched.begin(what, 200)
            watched.at(50)
            assert threading.active_count() == before
    return stream.getvalue() if stream is not None else ""


def test_each_part_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(Terminal(), monkeypatch)
    assert text.index("reading") < text.index("packing")
    assert "25%" in text


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_drawn_elsewhere(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(stream, monkeypatch) == ""
