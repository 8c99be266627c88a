"""Following a run over a connection that breaks: at whichever byte, no line is lost or shown twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.logs.following import Follower
from castoff.launcher.logs.positions import Positions, position_mark
from castoff.launcher.logs.show import Json, Show, Text
from castoff.launcher.logs.sources import Selection
from castoff.launcher.remote import passing

from ..logs.conftest import MadeRun, Time

TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no\n'


class Cut(Exception):
    """The connection broke."""


class Link:
    """A laptop that follows a run, over a connection that breaks once, after so many bytes."""

    def __init__(self, after: int | None, monkeypatch: pytest.MonkeyPatch):
        self.shown = b""
        self.said: list[str] = []
        self.left = after
        self.passed = 0
        monkeypatch.setattr(passing, "_show", self._show)
        self.positions = passing._Positions("far")

    def _show(self, data: bytes) -> None:
        self.shown += data

    def write(self, data: bytes) -> None:
        self.passed += len(data)
        if self.left is None:
            self.positions(data)
            return
        arrives, self.left = data[: self.left], self.left - len(data)
        self.positions(arrives)
        if self.left <= 0:
            self.left = None
            raise Cut

    def follow(self, run: MadeRun, time: Time, selection: Selection, show: Callable[[], Show]) -> list[str]:
        """The lines that were shown in the end."""
        while True:
            self.positions.rest = b""
            nonce = self.positions.nonce
            follower = Follower(
                run,
                selection,
                show(),
                write=self.write,
                report=self.said.append,
                pause=time.pause,
                clock=lambda: time.now,
                positions=Positions(dict(self.positions.reached), self.write, nonce=nonce),
            )
            try:
                follower.follow()
            except Cut:
                continue
            self._show(self.positions.rest)
            lines = self.shown.decode().replace(str(run.path), "RUN").splitlines()
            whole = [line for line in lines if not UNFINISHED.search(line) and " 20%" not in line]
            return [*whole, _unfinished(lines)]


UNFINISHED = re.compile("unfin|ished")


def _unfinished(lines: list[str]) -> str:
    """The line that is shown in two parts, unless its second part is there when its first is to be shown; as
    a progress bar's 20 % is not shown if 30 % is there.
    """
    return "".join(part for line in lines for part in UNFINISHED.findall(line))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def on_a_cluster(path: Path, time: Time) -> MadeRun:
    """Ranks with logs of their own, and the script's, which repeats the first rank's."""
    made = MadeRun(path)
    logs = made.begin()
    first, second, script = logs / "rank-00000.log", logs / "rank-00001.log", made.script_log()

    def both(text: str) -> None:
        append(first, text)
        append(script, text)

    append(script, "setup\n")
    both("epoch 1\nepoch 1\n")
    time.at(1, lambda: append(second, "epoch 1\nunfin"))
    time.at(5, lambda: append(second, "ished\n 10%\r 20%"))
    time.at(6, lambda: both("epoch 2\n"))
    time.at(7, lambda: append(script, "epoch 2\n"))  # the script's own, of the same text
    time.at(9, lambda: append(second, "\r 30%\nlast\n"))
    time.at(10, lambda: append(second, TRACEBACK[:50]))
    time.at(11, lambda: append(second, TRACEBACK[50:]))
    time.at(11, lambda: both(TRACEBACK))
    time.at(12, lambda: made.fail(1, log="rank-00001.log"))
    time.at(13, lambda: append(script, "teardown\n"))
    time.at(14, lambda: made.end(code=1, ending="failed"))
    return made


def on_one_host(path: Path, time: Time) -> MadeRun:
    """castoff's launcher, which merges the ranks' lines into the script's log."""
    made = MadeRun(path)
    made.record("plan.json", {"name": "made", "scheduler": "pbs", "launcher": "local", "ranks": 2})
    made.begin()
    script = made.script_log()
    append(script, "setup\n[0] one\n[1] one\n")
    time.at(1, lambda: append(script, "[0] two\n[1] Traceback (most recent call last):\n"))
    time.at(2, lambda: append(script, '[0] three\n[1]   File "a.py", line 1\n[0] four\n[1] ValueError: no\n'))
    time.at(3, lambda: append(script, "[0] unfin"))
    time.at(8, lambda: append(script, "ished\n"))
    time.at(9, lambda: made.end(ending="resume"))
    time.at(10, lambda: made.begin("0.1"))
    time.at(11, lambda: append(script, "castoff: attempt 1 begins\n[0] one\n"))
    time.at(12, lambda: made.end("0.1"))
    return made


SCENES = (on_a_cluster, on_one_host)
SHOWS = (lambda: Text(several=False, terminal=False, colours=False), Json)


@pytest.mark.parametrize("tail", [None, 1])
@pytest.mark.parametrize("show", SHOWS, ids=["text", "json"])
@pytest.mark.parametrize("scene", SCENES)
def test_no_line_is_lost_or_doubled(
    scene: Callable[[Path, Time], MadeRun],
    show: Callable[[], Show],
    tail: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    selection = Selection(tail=tail)
    time, whole = Time(), Link(None, monkeypatch)
    expected = whole.follow(scene(tmp_path / "whole" / "run", time), time, selection, show)
    assert len(expected) > 8
    for after in range(1, whole.passed, whole.passed // 25):
        time, link = Time(), Link(after, monkeypatch)
        lines = link.follow(scene(tmp_path / str(after) / "run", time), time, selection, show)
        lost, doubled = Counter(expected) - Counter(lines), Counter(lines) - Counter(expected)
        assert (lost, doubled) == ({}, {}), after


def test_marks_that_are_none_are_refused() -> None:
    positions = passing._Positions("far")
    mark = position_mark(positions.nonce)
    with pytest.raises(CastoffError, match="far: castoff there prints a mark that is none"):
        positions(mark + b'{"a": "b"}\n')


def test_output_without_marks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_LARGEST_UNMARKED", 1000)
    with pytest.raises(CastoffError, match="far: castoff there does not mark what it prints"):
        passing._Positions("far")(b"x" * 1001)
