"""Which logs a run has, and each of them as lines to show, whole and once.

On one machine castoff's starter merges the ranks' lines, in the order in which they come, into the
log of the member's script: that one is shown. Elsewhere each rank, or node, has its own, and the
script's log repeats the first one's (`tail -f`): there the script's own lines are shown beside them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from launcher.logs.failures import FailedRank
from launcher.logs.lines import ATTEMPT_BEGINS, Echo, Source, by_attempt
from launcher.logs.show import Show
from launcher.logs.tail import Tail, tail_start
from launcher.runs.run import Run, names_in
from launcher.starters.local.streams import RankLines
from launcher.starters.registry import MERGING

READ = 128 * 1024
"""Bytes that are read of a log at a time, so that a flood leaves the others their turn."""

LINE_PATIENCE = 2.0
"""Seconds that an unfinished line may stand before it is shown as it is.

More than in castoff's starter, which sees a program's writes: a file's end may be where a buffer ended.
"""

_FIRST_LOGS = ("rank-00000.log", "node-00000.log")
"""Those that a script on a cluster may repeat in its own, as templates/machinery/start.sh has it."""
_REPEATED = 40
"""Lines of the failed rank's log that it repeats at its end: templates/machinery/start.sh."""

_RANK_LOG = re.compile(r"(?P<kind>rank|node)-(?P<number>\d{5,})\.log")
_ATTEMPT = re.compile(r"(?P<member>\d+)\.(?P<attempt>\d+)")
_SCRIPT_LOG = re.compile(r"job-(?P<member>\d+)\.log")


class Selection(NamedTuple):
    """Which of a run's lines are wanted."""

    members: frozenset[int] = frozenset()
    """Empty: all."""
    attempt: int | None = None
    """None: all."""
    ranks: frozenset[int] = frozenset()
    """Their own logs alone; empty: all ranks, and what the script wrote."""
    tail: int | None = None
    """The last so many lines of each log; None: all."""

    def has(self, member: int, attempt: int) -> bool:
        """Whether an attempt is wanted."""
        return self.has_member(member) and self.attempt in (None, attempt)

    def has_member(self, member: int) -> bool:
        """Whether a member is wanted."""
        return not self.members or member in self.members


class Log:
    """A log's growth, as lines to show."""

    def __init__(self, source: Source, path: Path, shown: Callable[[bytes], bytes], start: int = 0):
        """`shown`: how whole lines are shown; `start`: the place in the file to begin at."""
        self.path = path
        self.of: tuple[int, int | None] = (source.member, source.attempt)
        """The member and its attempt; without one: it is of all of them."""
        self.due = self.interval = 0.0
        """When to look again, by a clock, and seconds since the look before: who follows it sets them."""
        self.grown = 0
        """Bytes that the last look has brought."""
        self._tail = Tail(path, start)
        self._shown = shown
        self._lines = RankLines(b"", LINE_PATIENCE)
        self._troubled = False
        self._cuts = 0

    @property
    def trouble(self) -> str | None:
        """Why it could not be read at the last look."""
        return self._tail.trouble

    def poll(self, now: float) -> bytes:
        """What to show of up to `READ` new bytes, and of a line that stands for too long."""
        growth = self._tail.read(READ)
        self.grown = len(growth.data)
        shown = self.finish() if growth.restarted else b""
        shown += self._shown(self._lines.feed(growth.data, now))
        due = self._lines.due()
        if due is not None and due <= now:
            shown += self._shown(self._lines.flush())
        return shown

    def finish(self) -> bytes:
        """The line that nobody has finished."""
        return self._shown(self._lines.flush())

    def notices(self) -> Iterator[str]:
        """What the reader of the lines should know, each once."""
        if self.trouble is not None and not self._troubled:
            yield f"{self.path}: cannot be read: {self.trouble}; trying again"
        self._troubled = self.trouble is not None
        if self._lines.cuts and not self._cuts:
            self._cuts = self._lines.cuts
            yield f"{self.path}: has a line of more than 64 KiB, which is shown in pieces"


class ScriptLog(Log):
    """What a script wrote, of all attempts: merged with all ranks' lines, or without its first rank's."""

    def __init__(self, run: Run, member: int, selection: Selection, show: Show):
        path = run.script_log(member)
        start = _start(path, selection)
        super().__init__(Source(member, 0), path, self._of_attempts, start)
        self.of = (member, None)
        self._run = run
        self._member = member
        self._selection = selection
        self._merged = is_merged(run)
        self._show = show.merged if self._merged else show.lines
        self._now = 0.0
        self._repeated: dict[int, bytes] = {}
        self._enter(_attempt_at(run, member, start))
        if not self._merged:  # a line is compared when it is whole
            self._lines = RankLines(b"", math.inf)

    def poll(self, now: float) -> bytes:
        """See `Log`."""
        self._now = now
        shown = super().poll(now)
        self._compare()
        return shown + self._told(self._echo.own(now))

    def finish(self) -> bytes:
        """See `Log`."""
        return super().finish() + self._rest()

    def expect(self, attempt: int, failed: FailedRank) -> None:
        """Know the lines of a failed rank that the script repeats at its end."""
        if failed.log is not None and failed.log.name not in _FIRST_LOGS:
            self._repeated[attempt] = failed.last_lines(_REPEATED)
            if attempt == self._attempt:
                self._echo.expect(self._repeated[attempt])

    def _of_attempts(self, block: bytes) -> bytes:
        shown = b""
        for attempt, lines in by_attempt(block, self._attempt):
            if attempt != self._attempt:
                shown += self._rest()
                self._enter(attempt)
            if self._merged:
                shown += self._told(lines)
                continue
            self._ahead += len(lines)
            self._echo.take(lines, self._now)
            self._compare()
        return shown

    def _rest(self) -> bytes:
        """What still waits to be known."""
        self._compare()
        self._echo.expect(self._first_lines.flush())
        return self._told(self._echo.end())

    def _told(self, block: bytes) -> bytes:
        if not block or not self._selection.has(self._member, self._attempt):
            return b""
        return self._show(Source(self._member, self._attempt), block)

    def _enter(self, attempt: int) -> None:
        self._attempt = attempt
        self._echo = Echo()
        self._echo.expect(self._repeated.get(attempt, b""))
        self._first: Tail | None = None
        self._first_lines = RankLines(b"")
        self._ahead = 0  # bytes of this log that have been read and not yet of the first rank's

    def _compare(self) -> None:
        """Read on in the first rank's log, but not much further than in this one."""
        while self._echo.waiting and self._ahead > -8 * READ:
            growth = self._first_log().read(READ)
            self._ahead -= len(growth.data)
            if not growth.data:
                return
            self._echo.expect(self._first_lines.feed(growth.data, 0.0))

    def _first_log(self) -> Tail:
        if self._first is None:
            folder = self._run.logs / f"{self._member}.{self._attempt}"
            path = next((folder / name for name in _FIRST_LOGS if (folder / name).exists()), None)
            if path is None:
                return Tail(folder / _FIRST_LOGS[0])  # the next look may find one
            self._first = Tail(path, _start(path, self._selection))
        return self._first


def is_merged(run: Run) -> bool:
    """Whether castoff's starter merges the ranks' lines into the script's log."""
    return run.facts().starter in MERGING


def attempts_with_logs(run: Run) -> list[tuple[int, int]]:
    """(member, attempt) of every attempt that has a folder of logs, in order."""
    found = (_ATTEMPT.fullmatch(name) for name in names_in(run.logs))
    return sorted((int(one["member"]), int(one["attempt"])) for one in found if one)


def members_with_script_logs(run: Run) -> list[int]:
    """Members whose script has a log in the run directory, as one that stands alone has not."""
    found = (_SCRIPT_LOG.fullmatch(name) for name in names_in(run.logs))
    return sorted(int(one["member"]) for one in found if one)


def rank_logs(run: Run, member: int, attempt: int, ranks: Collection[int] = ()) -> list[tuple[Source, Path]]:
    """The logs of an attempt's nodes and ranks, in order; with `ranks`, those of these ranks alone."""
    folder = run.logs / f"{member}.{attempt}"
    logs = filter(None, map(_RANK_LOG.fullmatch, sorted(names_in(folder))))
    found = [(Source(member, attempt, **{one["kind"]: int(one["number"])}), folder / one[0]) for one in logs]
    return [(source, path) for source, path in found if not ranks or source.rank in ranks]


def rank_log(source: Source, path: Path, selection: Selection, show: Show) -> Log:
    """One of `rank_logs`, to be read from where the selection begins."""
    return Log(source, path, partial(show.lines, source), _start(path, selection))


def _start(path: Path, selection: Selection) -> int:
    return 0 if selection.tail is None else tail_start(path, selection.tail)


def _attempt_at(run: Run, member: int, start: int) -> int:
    """Whose lines stand at this place of a member's log: the first's, or as what follows tells."""
    known = [attempt for of, attempt in attempts_with_logs(run) if of == member] or [0]
    if not start:
        return known[0]
    lines = RankLines(b"")
    rest = Tail(run.script_log(member), start)
    while growth := rest.read(READ).data:
        if found := ATTEMPT_BEGINS.search(lines.feed(growth, 0.0)):
            return int(found[1]) - 1
    return known[-1]
