"""Finds the logs of a run, and reads each as whole lines, of which none is shown twice.

On one machine, castoff's launcher merges the ranks' lines in order of arrival into the log of the member's
script, and this log is shown. On clusters, each rank or node has a log, and the script's log repeats the
first rank's (`tail -f`). Then all of these logs are shown, and the script's without the repeated lines.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.config.array_indices import members_range
from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.commands import MERGING
from castoff.launcher.launchers.local.streams import RankLines
from castoff.launcher.logs.lines import ATTEMPT_BEGINS, Source, by_attempt
from castoff.launcher.logs.show import LINE_PATIENCE, Show
from castoff.launcher.logs.tail import Tail, tail_start
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus

READ = 1024 * 1024
"""The number of bytes to read from a log at a time, so that a fast-growing log does not delay the others."""

_REPEATS = re.compile(rb"castoff: .* failed(?: first)?: .*; see .*/([^/]+\.log)$")
_REPEATED = 40
"""The line after which a script on a cluster repeats `_REPEATED` lines of the log that it names, as written
by templates/machinery/start.sh.
"""

_RANK_LOG = re.compile(r"(?P<kind>rank|node)-(?P<number>\d{5,})\.log")


class Selection(NamedTuple):
    """Which lines of a run the user wants to see."""

    members: frozenset[int] = frozenset()
    """The members; empty: all."""
    attempt: int | None = None
    """The attempt; None: all."""
    ranks: frozenset[int] = frozenset()
    """The ranks whose logs to show, without the script's; empty: all ranks and the script."""
    tail: int | None = None
    """Number of lines at the end of each log; None: all."""
    since: int = 0
    """The first attempt to show."""

    def has(self, member: int, attempt: int) -> bool:
        """Whether an attempt is selected."""
        return self.has_member(member) and self.attempt in (None, attempt) and attempt >= self.since

    def has_member(self, member: int) -> bool:
        """Whether the member is selected."""
        return not self.members or member in self.members


class Log:
    """A growing log, read as lines to show."""

    def __init__(
        self,
        source: Source,
        path: Path,
        shown: Callable[[bytes], bytes],
        lines: RankLines,
        start: int,
    ):
        """`shown`: formats whole lines. `lines`: splits bytes into lines. `start`: the offset to begin at."""
        self.path = path
        self.of: tuple[int, int | None] = (source.member, source.attempt)
        """The member and attempt of the log; (member, None) if it has the lines of all attempts."""
        self.grown = 0
        """Number of bytes that the last `poll` read."""
        self._tail = Tail(path, start)
        self._shown = shown
        self._lines = lines

    @property
    def position(self) -> int:
        """The offset up to which the log was shown, unless it `holds` lines."""
        return self._tail.offset - self._lines.pending

    @property
    def holds(self) -> bool:
        """Whether lines are held back, such as those of an incomplete traceback."""
        return self._lines.holds

    def skip(self, position: int) -> None:
        """Read up to an offset without showing anything, since all of it was shown."""
        while (left := position - self._tail.offset) > 0 and (data := self._tail.read(min(left, READ))):
            self._shown(self._lines.feed(data, 0.0))
        self._shown(self._lines.flush())

    @property
    def trouble(self) -> str | None:
        """Why the log could not be read at the last `poll`; None if it could."""
        return self._tail.trouble and f"{self.path}: cannot be read: {self._tail.trouble}"

    def poll(self, now: float) -> bytes:
        """The output for up to `READ` new bytes, and for an unfinished line older than `LINE_PATIENCE`."""
        data = self._tail.read(READ)
        self.grown = len(data)
        shown = [self.finish()] if self._tail.restarted else []
        shown.append(self._shown(self._lines.feed(data, now)))
        if (due := self._lines.due()) is not None and due <= now:
            shown.append(self._shown(self._lines.flush()))
        return b"".join(shown)

    def finish(self) -> bytes:
        """The output for an unfinished last line."""
        return self._shown(self._lines.flush())

    def rest(self, now: float) -> Iterator[bytes]:
        """The output for everything that has not been shown yet."""
        yield self.poll(now)
        while self.grown:
            yield self.poll(now)
        yield self.finish()


class ScriptLog(Log):
    """The script's log of all attempts, either merged with the ranks' lines or without its copies of them."""

    def __init__(
        self,
        run: RunDirectory,
        plan: Facts,
        member: int,
        attempts: Sequence[int],
        selection: Selection,
        show: Show,
    ):
        """`attempts`: the numbers of the member's attempts."""
        path = run.script_log(member)
        start = _start(path, selection.tail)
        self._merged, self._plan = is_merged(plan), plan
        # Lines are compared with those of another log, so they must be whole.
        lines = show.whole_lines(member) if self._merged else RankLines(b"", math.inf)
        super().__init__(Source(member, 0), path, self._of_attempts, lines, start)
        self.of = (member, None)
        self._run = run
        self._member = member
        self._selection = selection
        self._show = show
        numbers = attempts or [0]
        following = ATTEMPT_BEGINS.search(Tail(path, start).read(READ))
        self._enter(int(following[1]) - 1 if following else numbers[-1 if start else 0])
        if start and not self._merged:
            self._look_before(start)

    def _look_before(self, start: int) -> None:
        """Find the lines that are repeated at the starting offset, which an earlier line announces."""
        above = tail_start(self.path, (self._selection.tail or 0) + _REPEATED + 1)
        block = Tail(self.path, above).read(max(0, start - above))
        *_, (_, lines) = [(0, b""), *by_attempt(block, self._attempt)]
        for line in lines.split(b"\n")[:-1]:
            self._expect_repeats(line)

    def _expect_repeats(self, line: bytes) -> None:
        """If this line announces repeated lines, read these from the rank's log and count them."""
        if repeats := _REPEATS.search(line):
            list(self._repeated(os.fsdecode(repeats[1]), _REPEATED).rest(0.0))

    def finish(self) -> bytes:
        """See `Log`."""
        self._first.finish()
        return super().finish()

    def _of_attempts(self, block: bytes) -> bytes:
        shown = []
        for attempt, lines in by_attempt(block, self._attempt):
            if attempt != self._attempt:
                self._enter(attempt)
            if self._selection.has(self._member, attempt):
                source = Source(self._member, attempt)
                if self._merged:
                    shown.append(self._show.merged(source, lines))
                else:
                    shown.append(self._show.lines(source, self._own(lines)))
        return b"".join(shown)

    def _enter(self, attempt: int) -> None:
        self._attempt = attempt
        self._logs = self._run.log_folder / f"{self._member}.{attempt}"
        self._copies = Counter[bytes]()
        first = "rank-00000.log" if self._plan.per_rank_logs else "node-00000.log"
        self._first = self._repeated(first, self._selection.tail)
        self._ahead = 0  # bytes read of this log minus those of the first rank's

    def _own(self, block: bytes) -> bytes:
        """The script's own lines: those that do not repeat a rank's. Repeats are counted line by line, so
        that an incomplete line affects only itself.
        """
        self._ahead += len(block)
        # Read the first rank's log up to the same point, but not much further.
        while self._ahead > -READ:
            self._first.poll(0.0)
            if not self._first.grown:
                break
            self._ahead -= self._first.grown
        kept = []
        for line in block.split(b"\n")[:-1]:
            count = self._copies.pop(line, 0)
            if count > 1:
                self._copies[line] = count - 1
            if not count:
                kept.append(line + b"\n")
            self._expect_repeats(line)
        return b"".join(kept)

    def _repeated(self, name: str, tail: int | None) -> Log:
        """The log of a rank or node whose lines the script's log of this attempt repeats."""
        path = self._logs / name
        lines = RankLines(b"", LINE_PATIENCE)
        return Log(Source(self._member, self._attempt), path, self._count, lines, _start(path, tail))

    def _count(self, lines: bytes) -> bytes:
        self._copies.update(lines.split(b"\n")[:-1])
        return b""


def is_merged(plan: Facts) -> bool:
    """Whether castoff's launcher merges the ranks' lines into the script's log."""
    return plan.launcher in MERGING


def rank_logs(
    run: RunDirectory, member: int, attempt: int, ranks: Collection[int] = ()
) -> list[tuple[Source, Path]]:
    """The logs of an attempt's nodes and ranks, in order; with `ranks`, only those ranks' logs."""
    folder = run.log_folder / f"{member}.{attempt}"
    logs = filter(None, map(_RANK_LOG.fullmatch, sorted(names_in(folder))))
    all_logs = [
        (Source(member, attempt, **{log["kind"]: int(log["number"])}), folder / log[0]) for log in logs
    ]
    return [(source, path) for source, path in all_logs if not ranks or source.rank in ranks]


def rank_log(
    source: Source, path: Path, selection: Selection, show: Show, position: int | None = None
) -> Log:
    """A log of `rank_logs`, read from the beginning of the selection, or from shortly before a `position`."""
    whose = f"node {source.node}" if source.rank is None else f"rank {source.rank}"
    lines = show.whole_lines(source.member, whose)
    start = _start(path, selection.tail) if position is None else max(0, position - READ)
    return Log(source, path, partial(show.lines, source), lines, start)


def _start(path: Path, tail: int | None) -> int:
    return 0 if tail is None else tail_start(path, tail)


def members_of(run: RunDirectory, status: RunStatus, selection: Selection) -> list[MemberStatus]:
    """The members that the selection names.

    Raises:
        CastoffError: the run has no such member.
    """
    numbers = [one.member for one in status.members]
    for member in sorted(selection.members - {*numbers}):
        raise CastoffError(f"{run.id}: no member {member}; members are {members_range(numbers)}")
    return [one for one in status.members if selection.has_member(one.member)]


def check_ranks(run: RunDirectory, selection: Selection) -> str | None:
    """Check that each selected rank exists. Returns why a rank may have no log of its own, else None.

    Raises:
        CastoffError: there is no such rank.
    """
    plan = run.facts()
    count = plan.ranks
    if count is not None and (wrong := sorted(rank for rank in selection.ranks if rank >= count)):
        raise CastoffError(f"{run.id}: no rank {wrong[0]}; ranks are 0 to {count - 1}")
    if selection.ranks and plan.launcher not in MERGING and not plan.per_rank_logs:
        return f"{run.id}: its ranks share one log per node; only the rank that fails first has its own"
    return None


def attempts_of(
    run: RunDirectory, status: RunStatus, selection: Selection
) -> list[tuple[int, AttemptStatus]]:
    """The selected attempts, or else the newest attempt of each member, as pairs of member and attempt.

    Raises:
        CastoffError: there is no such attempt, or a named member has none.
    """
    chosen, problems = [], []
    for member in members_of(run, status, selection):
        try:
            chosen.append((member.member, _attempt(run, status, member, selection.attempt)))
        except CastoffError as error:
            problems.append(error)
    if problems and (selection.members or not chosen):
        raise problems[0]
    return chosen


def _attempt(
    run: RunDirectory, status: RunStatus, member: MemberStatus, attempt: int | None
) -> AttemptStatus:
    number = member.member
    whose = f"member {number} " if len(status.members) > 1 else ""
    attempts = {one.attempt: one for one in member.attempts}
    if not attempts:
        because = f": {status.reason}" if status.reason else f", it is {member.state}"
        raise CastoffError(f"{run.id}: {whose}has not begun, so it has no logs{because}")
    chosen = attempts.get(max(attempts) if attempt is None else attempt)
    if chosen is None:
        listed = ", ".join(map(str, attempts))
        raise CastoffError(f"{run.id}: {whose}has no attempt {attempt}; there is {listed}")
    if chosen.ended and not run.script_log(number).exists() and not Path(chosen.logs).exists():
        because = f": {chosen.reason}" if chosen.reason else ""
        raise CastoffError(f"{run.id}: {chosen.ending} before it began, so it has no logs{because}")
    return chosen
