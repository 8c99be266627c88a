"""Following a run: every log of every attempt as it grows, until the run is over.

Nobody tells us of a change, since a network file system would not: files are looked at, those that grow
often and those at rest seldom. What became of the run is read from its records, which is dearer and hence
rarer, and asked of Slurm, which is rarer still.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from launcher.errors import CastoffError
from launcher.logs.failures import FailedRank, failed_rank
from launcher.logs.lines import Source
from launcher.logs.show import End, Show
from launcher.logs.sources import (
    READ,
    Log,
    ScriptLog,
    Selection,
    attempts_with_logs,
    is_merged,
    members_with_script_logs,
    rank_log,
    rank_logs,
)
from launcher.runs.run import Run
from launcher.runs.states import AttemptStatus, MemberStatus, RunStatus
from launcher.schedulers.local.control import other_host
from launcher.schedulers.registry import is_own, queued
from launcher.status.watch import Asking, status

_LOOKS = (2000, 200)
"""Looks at files per second that are aimed at, while they grow and at rest."""
_OFTEN = (0.05, 0.5)
"""Seconds between looks at a file that grows: at least, at most."""
_SELDOM = (0.2, 2.0)
"""Seconds between looks at a file at rest: at least, at most."""
_SURVEY = 0.5
"""Seconds between looks at the records."""
_SURVEY_SHARE = 20
"""Times longer than a look at the records takes, the next one waits."""
_SETTLE = 0.3
"""Seconds after an ending in which what was written before may still come into sight."""
_BATCH = 8 * 1024 * 1024
"""Bytes that are read before they are shown."""


class Follower:
    """Shows a run's lines as they are written, and the first rank that fails before the others' noise."""

    def __init__(
        self,
        run: Run,
        selection: Selection,
        show: Show,
        *,
        write: Callable[[bytes], None],
        say: Callable[[str], None],
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`write` takes what is shown, `say` what is said about it, `pause` lets seconds pass."""
        self._run = run
        self._asking = Asking()
        self._selection = selection
        self._show = show
        self._write = write
        self._say = say
        self._pause = pause
        self._clock = clock
        self._merged = is_merged(run) and not selection.ranks
        self._watches: deque[Log] = deque()
        self._ended: dict[tuple[int, int | None], float] = {}
        """When a member's attempt, or with None the member, was first seen to be over."""
        self._retired: set[tuple[int, int | None]] = set()
        self._failed: dict[tuple[int, int], FailedRank] = {}
        self._said: set[str] = set()
        self._next_survey = 0.0
        self._read_records()

    def run(self) -> End:
        """Follow to the end.

        Raises:
            CastoffError: the run's records cannot be read, or its directory has gone.
        """
        while True:
            now = self._clock()
            if now >= self._next_survey:
                self._survey(now)
                if self._is_over():
                    return self._end()
            self._round(now)
            self._pause(self._idle_time())

    # The records, and which logs there are

    def _survey(self, now: float) -> None:
        begun = self._clock()
        self._read_records()
        self._tell_state()
        self._find_logs()
        self._show_failures()
        settled = self._settle(now)
        ended = self._clock()
        self._next_survey = min(settled, ended + max(_SURVEY, _SURVEY_SHARE * (ended - begun)))

    def _read_records(self) -> None:
        if not self._run.path.is_dir():
            raise CastoffError(f"{self._run.path}: is gone; if it was moved, name its new path")
        self._status = status(self._run, self._asking)
        self._members = [one for one in self._status.members if self._selection.has_member(one.member)]
        if queued(self._status.scheduler):
            self._is_seen = self._asking.answered and not self._status.unsettled
        else:
            local = is_own(self._status.scheduler) and self._run.submission() is not None
            self._is_seen = local and other_host(self._run) is None
        """Whether castoff knows if the run goes on: by a queue, or by its own scheduler on this host."""

    def _tell_state(self) -> None:
        """Say, once each, what the reader may wonder about while nothing comes."""
        now = self._status
        if not self._is_seen and now.state == "unknown":
            self._say_once(f"{now.id}: castoff cannot see its scheduler; Ctrl-C ends this before its ending")
        elif not now.over and not any(member.attempts for member in self._members):
            self._say_once(f"{now.id} has not begun{_because(now, self._run)}; waiting for it")
        elif now.over and not all(map(self._member_over, self._members)):
            self._say_once(f"{now.id}: stopped early; waiting for its next attempt")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _find_logs(self) -> None:
        """Watch what has come since the last survey."""
        run, wanted, known = self._run, self._selection, {log.path for log in self._watches}
        for member in [] if wanted.ranks else members_with_script_logs(run):
            over = (member, None) in self._retired
            if wanted.has_member(member) and not over and run.script_log(member) not in known:
                log = ScriptLog(run, member, wanted, self._show)
                for (failed_member, attempt), failed in self._failed.items():
                    if failed_member == member:
                        log.expect(attempt, failed)
                self._watches.append(log)
        for member, attempt in [] if self._merged else attempts_with_logs(run):
            if wanted.has(member, attempt) and (member, attempt) not in self._retired:
                found = rank_logs(run, member, attempt, wanted.ranks)
                new = [(source, path) for source, path in found if path not in known]
                self._watches += [rank_log(source, path, wanted, self._show) for source, path in new]

    # What is over

    def _settle(self, now: float) -> float:
        """Read what is over to its end, and look at it no more; when the next such look is due."""
        over: set[tuple[int, int | None]] = set()
        for member in self._members:
            over |= {
                (member.member, one.attempt) for one in member.attempts if self._attempt_over(member, one)
            }
            over |= {(member.member, None)} if self._member_over(member) else set()
        due = {key: self._ended.setdefault(key, now) + _SETTLE for key in over - self._retired}
        self._retire({key for key in due if due[key] <= now})
        return min((due[key] for key in due.keys() - self._retired), default=1e99)

    def _retire(self, keys: set[tuple[int, int | None]]) -> None:
        self._retired |= keys
        for log in [one for one in self._watches if one.of in keys]:
            self._watches.remove(log)
            while (shown := self._poll(log)) or log.grown:
                self._write(shown)
            self._write(log.finish())

    def _attempt_over(self, member: MemberStatus, attempt: AttemptStatus) -> bool:
        dead = attempt.state == "unknown" and self._is_seen
        return attempt.state == "ended" or dead or attempt.attempt < member.attempts[-1].attempt

    def _member_over(self, member: MemberStatus) -> bool:
        wanted = self._selection.attempt
        if any(one.attempt == wanted and self._attempt_over(member, one) for one in member.attempts):
            return True
        if self._is_seen:
            return member.state in ("ended", "unknown")
        return member.state == "ended" and member.ending != "again"

    def _is_over(self) -> bool:
        return all((member.member, None) in self._retired for member in self._members)

    def _end(self) -> End:
        now = self._status
        last = [(member.member, one) for member in self._members if (one := self._newest(member))]
        failed = [self._failed[key] for member, one in last if (key := (member, one.attempt)) in self._failed]
        first = min(failed, key=_when, default=None)
        ending, code, reason = now.ending, now.code, now.reason
        if self._selection.members or self._selection.attempt is not None:
            worst = next((one for _, one in last if one.code), last[0][1] if last else None)
            if worst is not None:
                ending, code, reason = worst.ending, worst.code, worst.reason
        return End(now.id, ending or "unknown", code, reason, first)

    def _newest(self, member: MemberStatus) -> AttemptStatus | None:
        """The newest attempt of a member, of those that are wanted."""
        wanted = [one for one in member.attempts if self._selection.has(member.member, one.attempt)]
        return wanted[-1] if wanted else None

    # What is shown

    def _round(self, now: float) -> None:
        """Look at every log that is due, and show what they bring; a failure before all of it."""
        batch: list[bytes] = []
        size = 0
        touched = set()
        often, seldom = self._intervals()
        for _ in range(len(self._watches)):
            if size > _BATCH:
                break  # the others come first in the next round
            log = self._watches[0]
            self._watches.rotate(-1)
            if log.due > now:
                continue
            if shown := self._poll(log):
                batch.append(shown)
                size += len(shown)
                touched.add(log.of[0])
            log.interval = often if log.grown else min(2 * max(log.interval, often), seldom)
            log.due = now if log.grown == READ else now + log.interval
        if self._has_failed(touched):
            self._read_records()
            self._show_failures()
        for shown in batch:
            self._write(shown)

    def _poll(self, log: Log) -> bytes:
        shown = log.poll(self._clock())
        for notice in log.notices():
            self._say(notice)
        return shown

    def _intervals(self) -> tuple[float, float]:
        """Seconds between two looks at a file that grows, and at one at rest: longer if there are many."""
        count = len(self._watches)
        often, seldom = count / _LOOKS[0], count / _LOOKS[1]
        return min(max(often, _OFTEN[0]), _OFTEN[1]), min(max(seldom, _SELDOM[0]), _SELDOM[1])

    def _idle_time(self) -> float:
        """Seconds until something is due, in steps that do not wake for every file alone."""
        soonest = min([self._next_survey, *(log.due for log in self._watches)])
        left = soonest - self._clock()
        return max(left, self._intervals()[0]) if left > 0 else 0.0

    def _has_failed(self, members: set[int]) -> bool:
        """Whether there is a record of a failure, of an attempt of these, that has not been shown."""
        attempts = self._run.path / "attempts"
        for member in (one for one in self._members if one.member in members):
            newest = member.attempts[-1].attempt if member.attempts else -1
            for attempt in (newest, newest + 1):
                record = attempts / f"{member.member}.{attempt}" / "failure.json"
                if (member.member, attempt) not in self._failed and record.exists():
                    return True
        return False

    def _show_failures(self) -> None:
        """The failures that have not been shown, first the first; not those of attempts long past."""
        new = []
        for member in self._members:
            for one in member.attempts:
                key = (member.member, one.attempt)
                if key not in self._failed and (failed := failed_rank(self._run, member.member, one)):
                    self._failed[key] = failed
                    for log in self._watches:
                        if isinstance(log, ScriptLog) and log.of[0] == member.member:
                            log.expect(one.attempt, failed)
                    if one is self._newest(member) and not self._selection.ranks:
                        new.append((key, failed))
        for key, failed in sorted(new, key=lambda one: _when(one[1])):
            self._write(self._show.failure(Source(*key), failed, failed.excerpt()))


def _when(failed: FailedRank) -> float:
    return failed.failure.time or 0.0


def _because(now: RunStatus, run: Run) -> str:
    if now.reason:
        return f": {now.reason}"
    record = run.submission()
    after = record.after.items() if record else ()
    others = [f"{condition} of {Path(path).name}" for condition, paths in after for path in paths]
    return f", it waits for {', '.join(others)}" if others else f", it is {now.state}"
