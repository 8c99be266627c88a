"""Follows a run: shows every log of every attempt as it grows, until the run is over.

Network file systems do not notify readers of changes, so files are polled, less often if there are many. The
run's state is read from its records, which costs more and is done less often; Slurm is asked even less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from castoff.launcher.errors import CastoffError
from castoff.launcher.logs.failures import FailedRank, failed_rank
from castoff.launcher.logs.lines import Source
from castoff.launcher.logs.positions import Positions
from castoff.launcher.logs.show import End, Show
from castoff.launcher.logs.sources import READ, Log, ScriptLog, Selection, is_merged, rank_log, rank_logs
from castoff.launcher.runs.owner import other_host
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus, expected_words
from castoff.launcher.schedulers.registry import is_own, queued
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.script_output import script_headline
from castoff.launcher.status.watch import status

_LOOKS = 200
"""The maximum number of files checked per second, unless `_SELDOM` requires more."""
_OFTEN, _SELDOM = 0.1, 2.0
"""Shortest and longest time between two checks of all files, in seconds."""
_SURVEY = 0.5
"""Seconds between two readings of the records."""
_SURVEY_SHARE = 20
"""The pause after reading the records, as a multiple of the time that the reading took."""
_SURVEY_MOST = 10.0
"""Longest time between two readings of the records, in seconds, since a scheduler may have been slow only
once.
"""
_SETTLE = 0.3
"""Seconds after an ending in which lines that were written before may still appear."""


@dataclass(eq=False)
class Follower:
    """Shows a run's lines as they are written, and the rank that failed first before others' lines."""

    run: RunDirectory
    selection: Selection
    show: Show
    write: Callable[[bytes], None]
    """Writes the shown lines to the output."""
    report: Callable[[str], None]
    """Writes messages to the user."""
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    poller: Poller = field(default_factory=Poller)
    """Queries the scheduler."""
    ask: Callable[[bool], RunStatus] | None = None
    """Returns the run's status, by queries of `poller` for several runs at once; it takes whether the records
    must be read now. None: the run is asked about alone.
    """
    positions: Positions = field(default_factory=Positions)
    """How far the logs were shown over an earlier connection, and are now."""
    companions: int = 1
    """The number of runs that are followed at the same time, this one included: each is checked less often
    the more there are.
    """

    def __post_init__(self) -> None:
        self._plan = self.run.facts()
        self._merged = is_merged(self._plan) and not self.selection.ranks
        self._watches: list[Log] = []
        self._over: set[tuple[int, int | None]] = set()
        """The attempts that have ended, as pairs of member and attempt; (member, None) if the
        member is over.
        """
        self._retired: set[tuple[int, int | None]] = set()
        """The attempts whose logs have been read to the end."""
        self._failed: dict[tuple[int, int], FailedRank] = {}
        self._tried: set[tuple[int, int]] = set()
        """The attempts whose failure record was read since the last survey; it may have been incomplete."""
        self._next_survey = self._next_round = 0.0
        self._surveyed = False
        self._read_records()

    def follow(self) -> End:
        """Follow the run to its end.

        Raises:
            CastoffError: the run's records cannot be read, or its directory is gone.
        """
        while (end := self.step()) is None:
            self.pause(max(0.0, self.due - self.clock()))
        return end

    @property
    def due(self) -> float:
        """When the next step is due, by the clock."""
        return min(self._next_survey, self._next_round)

    def step(self) -> End | None:
        """Show what is new, if it is time to look; return the end of a run that is over and was shown.

        Raises:
            CastoffError: the run's records cannot be read, or its directory is gone.
        """
        now = self.clock()
        if now >= self._next_survey:
            self._survey(now)
            if self._status.never_begins or all(
                (member.member, None) in self._retired for member in self._members
            ):
                return self._end()
        if now >= self._next_round:
            self._round()
        return None

    # Reading records and finding logs

    def _survey(self, now: float) -> None:
        self._tried.clear()
        self._read_records()
        self._report_state()
        self._find_logs()
        self._show_failures()
        self._retire()
        took = self.clock() - now
        pause = _SETTLE if self._over > self._retired else survey_pause(took * self.companions)
        self._next_survey = now + took + pause

    def _read_records(self, *, fresh: bool = False) -> None:
        if not self.run.path.is_dir():
            raise CastoffError(f"{self.run.path}: is gone; if it was moved, name its new path")
        self._status = status(self.run, self.poller) if self.ask is None else self.ask(fresh)
        self._members = [
            member for member in self._status.members if self.selection.has_member(member.member)
        ]
        if queued(self._status.scheduler):
            self._is_seen = self.poller.silence_on(self.run) is None and not self._status.unsettled
        else:
            local = is_own(self._status.scheduler) and self.run.submission() is not None
            self._is_seen = local and other_host(self.run) is None
        """Whether a queue, or castoff's scheduler on this host, shows if the run is active."""

    def _report_state(self) -> None:
        """Report why there are no new lines, each reason once."""
        run = self._status
        if not self._is_seen and run.state == "unknown":
            self._report_once(f"{run.id}: castoff cannot query its scheduler; Ctrl-C stops following the run")
        elif run.state == "running" and not any(member.attempts for member in self._members):
            self._report_once(f"{run.id} is running, and its script has written nothing yet; waiting for it")
        elif not run.over and not any(member.attempts for member in self._members):
            self._report_once(f"{run.id} has not begun{_because(run)}; waiting for it")
        elif run.state == "pending" and run.reason:
            begins = "" if run.reason.startswith("its next attempt") else "its next attempt has not begun: "
            self._report_once(f"{run.id}: {begins}{run.reason}{_expected(run)}; waiting for it")
        elif run.over and not all(map(self._member_over, self._members)):
            self._report_once(f"{run.id}: stopped early; waiting for its next attempt")

    def _report_once(self, text: str) -> None:
        if self.positions.is_first(f"{self.run.id}: {text}"):
            self.report(text)

    def _find_logs(self) -> None:
        """Start watching the logs that have appeared since the last survey."""
        run, watched = self.run, {log.path for log in self._watches}
        # Logs that appear later are shown from their beginning.
        is_later = self._surveyed or self.positions.resumed
        wanted = self.selection._replace(tail=None) if is_later else self.selection
        self._surveyed = True
        for member in self._members:
            key: tuple[int, int | None] = (member.member, None)
            path = run.script_log(member.member)
            if not wanted.ranks and key not in self._retired and path not in watched and path.exists():
                attempts = [attempt.attempt for attempt in member.attempts]
                self._watch(ScriptLog(run, self._plan, member.member, attempts, wanted, self.show))
            for number in [] if self._merged else [attempt.attempt for attempt in member.attempts]:
                if wanted.has(member.member, number) and (member.member, number) not in self._retired:
                    logs = rank_logs(run, member.member, number, wanted.ranks)
                    for source, path in [(source, path) for source, path in logs if path not in watched]:
                        position = self.positions.reached(self._key(path))
                        self._watch(rank_log(source, path, wanted, self.show, position))

    def _watch(self, log: Log) -> None:
        """Watch a log, from where it was shown over an earlier connection."""
        if (position := self.positions.reached(self._key(log.path))) is not None:
            log.skip(position)
        elif log.position:
            self.positions.set(self._key(log.path), log.position)
        self._watches.append(log)

    def _key(self, path: Path) -> str:
        return f"{self.run.id}/{path.relative_to(self.run.path)}"

    # Ended attempts and members

    def _retire(self) -> None:
        """Read to the end the logs of attempts that were over at the last survey, and stop watching them."""
        retiring = self._over - self._retired
        logs: dict[tuple[int, int | None], list[Log]] = {}
        for watch in self._watches:
            if watch.of in retiring:
                logs.setdefault(watch.of, []).append(watch)
        if logs:
            self._watches = [watch for watch in self._watches if watch.of not in retiring]
        for key in retiring:
            for log in logs.get(key, ()):
                for shown in log.rest(self.clock()):
                    self.write(shown)
                self.positions.set(self._key(log.path), log.position)
        self._retired |= self._over
        for member in self._members:
            if self._member_over(member):
                self._over.add((member.member, None))
            for attempt in member.attempts:
                if self._attempt_over(member, attempt):
                    self._over.add((member.member, attempt.attempt))

    def _attempt_over(self, member: MemberStatus, attempt: AttemptStatus) -> bool:
        dead = attempt.state == "unknown" and self._is_seen
        return attempt.state == "ended" or dead or attempt.attempt < member.attempts[-1].attempt

    def _member_over(self, member: MemberStatus) -> bool:
        wanted = self.selection.attempt
        if any(
            attempt.attempt == wanted and self._attempt_over(member, attempt) for attempt in member.attempts
        ):
            return True
        if self._is_seen:
            return member.state in ("ended", "unknown")
        return member.state == "ended" and member.ending != "resume"

    def _end(self) -> End:
        self.positions.hold(self.run.id, holds=False)
        run = self._status
        last = [(member.member, attempt) for member in self._members if (attempt := self._newest(member))]
        # Again, since reasons may have been recorded meanwhile.
        failed = [failed_rank(self.run, member, attempt) for member, attempt in last]
        first = min(filter(None, failed), key=lambda rank: rank.time, default=None)
        ending, code, reason = run.ending, run.code, run.reason
        if run.never_begins:
            reason = f"{reason}; `castoff cancel {run.id}` takes it out of the queue"
            return End(run.id, "never begins", 1, reason, None)
        if self.selection.members or self.selection.attempt is not None:
            worst = next((attempt for _, attempt in last if attempt.code), last[0][1] if last else None)
            if worst is not None:
                ending, code, reason = worst.ending, worst.code, worst.reason
        reason = reason or next((attempt.reason for _, attempt in last if attempt.code), None)
        if first is None and reason is None:
            printed = (script_headline(self.run, member, attempt) for member, attempt in last)
            reason = next(filter(None, printed), None)
        return End(run.id, ending or "unknown", code, reason, first)

    def _newest(self, member: MemberStatus) -> AttemptStatus | None:
        """The newest attempt of a member that is selected."""
        selected = [
            attempt for attempt in member.attempts if self.selection.has(member.member, attempt.attempt)
        ]
        return selected[-1] if selected else None

    # Showing lines and failures

    def _round(self) -> None:
        """Show the new lines of every log, after any newly recorded failure."""
        # Failures first, since lines shown with a failure are left out of the logs' lines.
        if self._has_failed({log.of[0] for log in self._watches}):
            self._read_records(fresh=True)
            self._show_failures()
        batch = {log: shown for log in self._watches if (shown := log.poll(self.clock()))}
        for log in self._watches:
            if log.trouble:
                self._report_once(f"{log.trouble}; trying again")
        self.positions.hold(self.run.id, holds=any(log.holds for log in self._watches))
        for log, shown in batch.items():
            self.write(shown)
            self.positions.set(self._key(log.path), log.position)
            self.positions.mark()
        self.positions.mark()  # for what was shown before
        flooded = any(log.grown == READ for log in self._watches)
        looks = len(self._watches) * self.companions
        pause = 0.0 if flooded else min(max(looks / _LOOKS, _OFTEN), _SELDOM)
        self._next_round = self.clock() + pause

    def _has_failed(self, members: set[int]) -> bool:
        """Whether a member has a failure record that is new since the last survey."""
        for member in (one for one in self._members if one.member in members):
            newest = member.attempts[-1].attempt if member.attempts else -1
            for attempt in (newest, newest + 1):
                key = (member.member, attempt)
                record = self.run.path / "attempts" / f"{member.member}.{attempt}" / "failure.json"
                if key not in self._failed and key not in self._tried and record.exists():
                    self._tried.add(key)
                    return True
        return False

    def _show_failures(self) -> None:
        """Show the failures of newest attempts that were not shown yet, the earliest first."""
        new = []
        for member in self._members:
            for attempt in member.attempts:
                key = (member.member, attempt.attempt)
                if key not in self._failed and (failed := failed_rank(self.run, member.member, attempt)):
                    self._failed[key] = failed
                    if attempt is self._newest(member) and not self.selection.ranks:
                        new.append((key, failed))
        for key, failed in sorted(new, key=lambda item: item[1].time):
            shown = self.show.failure(Source(*key), failed, failed.excerpt())
            if self.positions.is_first(f"{self.run.id}: failure of {key[0]}.{key[1]}"):
                self.write(shown)


def survey_pause(took: float) -> float:
    """Seconds until the records are read again, if reading them took so many seconds."""
    return max(_SURVEY, min(_SURVEY_SHARE * took, _SURVEY_MOST))


def _expected(run: RunStatus) -> str:
    return f"; {expected_words(run.expected_start)}" if run.expected_start else ""


def _because(run: RunStatus) -> str:
    return f": {run.reason}{_expected(run)}" if run.reason else f", it is {run.state}"
