"""The state of the members of a run on a cluster, from its records and its scheduler.

The script's record counts where it knows best: its program was done, failed, or can be resumed. It does not
know why it was ended from outside, and writes nothing when it is killed: then the scheduler's word counts,
which is kept in the attempt's folder, since schedulers forget.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from castoff.launcher.runs.records import LastWord, Send
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, known_ending
from castoff.launcher.schedulers.base_queue import Answer, Key, Queue
from castoff.launcher.schedulers.job_info import JobInfo, member_job_id
from castoff.launcher.status.survey import Attempt, RunRecords

_CODES = {"done": 0, "cancelled": 143, "preempted": 143, "walltime": 143, "out-of-memory": 137}
"""The exit code to show for an attempt whose ending only the scheduler knows; 1 for endings not in this
table."""

_FILES_LAG = 60.0
"""Seconds until a network file system shows what another host wrote."""

_CLOCKS = 3.0
"""Seconds by which the clocks of a node and of the controller may differ."""

_LONGEST_WORD = 40
"""Number of characters of a scheduler's state that are shown."""

_ABOUT_TO_BEGIN = "its next attempt is about to begin"


class SchedulerView:
    """The states of a run's members, from its records and its scheduler's answers."""

    def __init__(
        self,
        records: RunRecords,
        queue: Queue,
        answer: Answer,
        history: Mapping[str, list[JobInfo]] | None,
        seen: Container[tuple[int, int]],
    ):
        """Take what the queue has answered, and what accounting knows of jobs; None: no answer. `seen`: the
        attempts that had begun before the queue was asked, as pairs of member and number.
        """
        self.records = records
        self.queue = queue
        self.answer = answer
        self.history = history
        self.seen = seen
        self.now = time.time()
        self.title = queue.title
        self.doubtful: set[str] = set()
        """The jobs about which accounting should be asked."""
        self.learnt: list[tuple[Path, LastWord]] = []
        """The scheduler's last words that have to be written down, each with its attempt's folder."""
        self.unsettled = False
        """Whether something is unknown now and may become known later."""
        self.stuck: str | None = None
        """Why a member will wait until somebody acts; None: none does."""
        self.members = [self._member(number) for number in records.numbers]
        if (
            records.unclear is not None and not self.unsettled
        ):  # of a chain: no member begins with a later link
            going = ("pending", "running")
            self.members = [
                member if member.state in going else self._unclear(member) for member in self.members
            ]

    def _member(self, number: int) -> MemberStatus:
        """The state of one member."""
        attempts = self.records.attempts.get(number, [])
        own = self.records.own(number)
        newest = own[-1] if own else None
        past = attempts[:-1] if newest else attempts
        statuses = [
            self._past(number, one, requeued=any(next.job == one.job for next in attempts[place + 1 :]))
            for place, one in enumerate(past)
        ]
        send = self.records.place(number) if number in self.records.begin else None
        if send is None:
            return self._left_alone(number, statuses)
        if newest is None:
            return self._not_begun(number, send, statuses)
        job = send.job
        if len(own) > 1:
            job = own[-2].job if own[-2].restarted else self.records.following(own[-2]) or job
        return self._begun(number, newest, job, statuses)

    def _left_alone(self, number: int, statuses: list[AttemptStatus]) -> MemberStatus:
        """The state of a member that the newest submission does not start."""
        if statuses:
            return _ended_as(number, statuses)
        submission = self.records.submission
        if submission and submission.error is not None:
            return MemberStatus(number, "ended", "failed", [])
        if self.records.alive:
            return MemberStatus(number, "pending", None, [], "it is just being submitted")
        return MemberStatus(number, "unknown", "unknown", [], "nothing was submitted for it")

    def _not_begun(self, number: int, send: Send, statuses: list[AttemptStatus]) -> MemberStatus:
        """The state of a member whose newest attempt has left no record."""
        if send.error is not None:
            return _ended_as(number, statuses) if statuses else MemberStatus(number, "ended", "failed", [])
        if send.job is None:
            if self.records.alive:
                return MemberStatus(number, "pending", None, statuses, "it is just being submitted")
            if self.records.submission is None:
                return self._nameless(number, statuses)
            return self._unclear(MemberStatus(number, "unknown", "unknown", statuses))
        key = self.records.key(number, send.job) or (send.job, None)
        info = self._reported(key)
        if info is None and (silence := self._silence(key)):
            return self._silent(number, silence, statuses)
        if info is not None and info.stage == "pending":
            return self._pending(number, info, statuses)
        if info is not None and info.stage == "running":
            return MemberStatus(number, "running", None, statuses, "its script has not written anything yet")
        if info is not None and info.stage == "unknown":
            return self._in_unknown_state(number, info, statuses)
        if info is None or info.ended_itself:
            info = self._newest_start(key) or info
        known = key[0] in self.answer.ids or key[0] in (self.history or {})
        if info is None and known and key[1] is not None:  # an array's member that was cancelled
            return self._never_began(number, LastWord("cancelled", 143, key[0]), statuses)
        if (info is None or info.stage == "unknown") and (last := self._cancelled(key)):
            return self._never_began(number, last, statuses)
        if info is not None and info.stage == "unknown":
            return self._in_unknown_state(number, info, statuses)
        if info is None:
            return MemberStatus(number, "unknown", "unknown", statuses, self._forgotten(key))
        if info.ending == "done":
            reason = (
                f"{self.title} reports {info.word}, but its script has written nothing into the run directory"
            )
            if info.end is not None and self.now - info.end < _FILES_LAG:
                self.unsettled = True
            return MemberStatus(number, "unknown", "unknown", statuses, reason)
        return self._never_began(number, self._last_word(info, info.exit_code), statuses)

    def _begun(
        self, number: int, newest: Attempt, job: str | None, statuses: list[AttemptStatus]
    ) -> MemberStatus:
        """The state of a member whose newest attempt has left records. `job`: the job to assume if the
        records do not name one yet."""
        key = self.records.key(number, newest.job or job)
        info = self._reported(key) if key else None
        was_seen = (number, newest.number) in self.seen
        if info is not None and info.stage == "pending" and was_seen:  # it has been queued again since
            return self._pending(number, info, [*statuses, self._past(number, newest, requeued=True)])
        is_active = info is not None and info.is_active
        following = self.records.following(newest) if newest.last is None else None
        so_far = [*statuses, newest.by_records()]
        if following is not None and not (is_active and newest.end is None):
            if is_active and newest.next is None:  # a chain's next job waits until this one is gone
                return MemberStatus(number, "pending", None, so_far, _ABOUT_TO_BEGIN)
            followed = self._follows(number, newest, following, statuses)
            if followed is not None:
                return followed
        if newest.is_certain:
            return _ended_as(number, so_far)
        if info is not None and info.stage == "unknown":
            now = newest.by_records() if newest.end else newest.status("unknown", "unknown")
            return self._in_unknown_state(number, info, [*statuses, now])
        if is_active:
            if newest.is_active:
                return MemberStatus(number, "pending", None, so_far, _ABOUT_TO_BEGIN)
            return MemberStatus(number, "running", None, [*statuses, newest.status("running")])
        if key is None and newest.end is None:
            unknown = newest.status("unknown", "unknown")
            return self._nameless(number, [*statuses, unknown])
        if info is None and (silence := self._silence(key)):
            if self.answer.lasting and newest.end and not newest.is_active:
                return _ended_as(number, so_far)
            return self._silent(number, silence, [*statuses, newest.status("unknown", "unknown")])
        if newest.is_active:
            return self._stopped(number, newest, key, info, so_far)
        if info is None or info.ended_itself:
            start = self._start_of(key, newest)
            # Who was killed for want of memory is known by the accounting of a step alone.
            unanswered = newest.was_killed or (start is None and newest.end is None)
            info = start or info
            end = info.end or 0.0 if info is not None and info.ended_itself else 0.0
            if unanswered and self.history is not None and self.now - end < self.queue.lag:
                return MemberStatus(number, "running", None, [*statuses, newest.status("running")])
        reason = self._forgotten(key)
        if info is not None and info.stage == "ended":
            if not info.may_have_been_killed or newest.end is not None or newest.finished:
                return _ended_as(number, [*statuses, self._by_scheduler(newest, info)])
            reason = (
                f"{self.title} reports that it ended well, as it does for all jobs of "
                f"{self.queue.user_name} that "
                "were killed, and no ending was recorded; castoff does not guess. Read the logs, then "
                "resubmit it"
            )
        elif (newest.end is None or newest.was_killed) and (last := self._cancelled(key)):
            # A rank may end by the scheduler's signal before its script has it, and then counts as failed.
            self.learnt.append((newest.folder, last))
            return _ended_as(number, [*statuses, newest._replace(last=last).by_records()])
        elif newest.end is not None:
            return _ended_as(number, so_far)
        elif info is not None and info.stage == "unknown":
            return self._in_unknown_state(number, info, [*statuses, newest.status("unknown", "unknown")])
        unknown = newest.status("unknown", "unknown", reason=reason)
        return MemberStatus(number, "unknown", "unknown", [*statuses, unknown], reason)

    def _stopped(
        self,
        number: int,
        newest: Attempt,
        key: Key | None,
        info: JobInfo | None,
        statuses: list[AttemptStatus],
    ) -> MemberStatus:
        """The state of a member that should have been started again, but is no longer in the queue."""
        info = info or (self._newest_start(key) if key else None)
        lost = newest.last is not None and info is not None and info.stage == "ended"
        if info is not None and (info.was_cancelled or (lost and info.ending != "done")):
            return self._never_began(number, self._last_word(info, info.exit_code), statuses)
        if (info is None or info.stage == "unknown") and (last := self._cancelled(key)):
            return self._never_began(number, last, statuses)
        if info is not None and info.stage == "unknown":
            return self._in_unknown_state(number, info, statuses)
        return _ended_as(number, statuses)

    def _follows(
        self, number: int, newest: Attempt, job: str, statuses: list[AttemptStatus]
    ) -> MemberStatus | None:
        """The state of a member whose next attempt belongs to another job that has left no record; None if
        there will be no such attempt."""
        key = self.records.key(number, job) or (job, None)
        info = self._reported(key)
        statuses = [*statuses, self._past(number, newest, requeued=False)]
        if info is None and (silence := self._silence(key)):
            return self._silent(number, silence, statuses)
        if info is not None and info.stage == "pending":
            return self._pending(number, info, statuses)
        if info is not None and info.stage == "running":
            return MemberStatus(number, "pending", None, statuses, _ABOUT_TO_BEGIN)
        if info is not None and info.stage == "unknown":
            return self._in_unknown_state(number, info, statuses)
        if info is not None and info.ending == "cancelled" and not info.dependency_never_satisfied:
            return self._never_began(number, self._last_word(info, info.exit_code), statuses)
        if info is None and (last := self._cancelled(key)):
            return self._never_began(number, last, statuses)
        return None

    # Answers

    def _reported(self, key: Key) -> JobInfo | None:
        """What the queue reports of a job; None if it does not list the job."""
        info = self.answer.jobs.get(key)
        whole = self.answer.jobs.get((key[0], None))
        if info is None and whole and whole.is_active:
            info = whole  # it has not come to its members yet
        return info if info and self.records.owns(info) else None

    def _silence(self, key: Key | None) -> str | None:
        """Why the queue has not answered about a job."""
        return self.answer.silence_on([key[0] if key else None])

    def _starts(self, key: Key) -> list[JobInfo]:
        """What accounting knows of a job's starts. A caller that needs it before it was asked has the job
        added to `doubtful`."""
        job, index = key
        if self.history is None:
            self.doubtful.add(job)
        info = (self.history or {}).get(job, [])
        return [one for one in info if one.task == index and self.records.owns(one)]

    def _newest_start(self, key: Key) -> JobInfo | None:
        """How a job ended according to accounting, or that its state is not understood; None if it has not
        ended."""
        newest = max(self._starts(key), key=lambda one: one.submitted or 0.0, default=None)
        return newest if newest and newest.stage in ("ended", "unknown") else None

    def _start_of(self, key: Key | None, attempt: Attempt) -> JobInfo | None:
        """How one start of a job ended according to accounting, or that its state is not understood."""
        if key is None:
            return None
        began = (attempt.start.time if attempt.start else None) or 0.0
        # Those after it are later attempts, which accounting may have heard of before it has of this end.
        starts = [start for start in self._starts(key) if start.start and start.start <= began + _CLOCKS]
        last = max(starts, key=lambda one: one.start or 0.0, default=None)
        return last if last and (last.stage in ("ended", "unknown") or last.was_requeued) else None

    # Statuses

    def _pending(self, number: int, info: JobInfo, statuses: list[AttemptStatus]) -> MemberStatus:
        reason = info.pending_reason
        if info.is_held:
            reason = self._beside_excluded(reason)
            self.stuck = self.stuck or reason
        never = info.dependency_never_satisfied
        return MemberStatus(number, "pending", None, statuses, reason, never, expected_start=info.start)

    def _in_unknown_state(self, number: int, info: JobInfo, statuses: list[AttemptStatus]) -> MemberStatus:
        """The state of a member whose job is listed with a state from which castoff cannot tell whether it
        has ended."""
        self.unsettled = True
        meaning = f": {info.why}" if info.why else ", a state that castoff does not know"
        reason = (
            f"{self.title} reports job {info.job} as {info.word[:_LONGEST_WORD]}{meaning}; it may be running"
        )
        return MemberStatus(number, "unknown", "unknown", statuses, reason)

    def _unclear(self, member: MemberStatus) -> MemberStatus:
        """The state of a member whose submission may or may not have arrived."""
        self.unsettled = True
        reason = "there was no answer, so it may or may not have been submitted; "
        silence = self.answer.silence
        reason += self._unreachable(silence) if silence else "ask again in a few seconds"
        return MemberStatus(member.member, "unknown", "unknown", member.attempts, reason)

    def _nameless(self, number: int, statuses: list[AttemptStatus]) -> MemberStatus:
        """The state of a member whose script was not submitted by castoff and has not yet recorded its
        job."""
        touched = max((one.touched for found in self.records.attempts.values() for one in found), default=0.0)
        if self.now - touched < _FILES_LAG:
            self.unsettled = True
            reason = "its script has just begun and not recorded its job yet; ask again in a few seconds"
        else:
            reason = f"its script recorded no job, so {self.title} cannot be asked about it; read the logs"
        return MemberStatus(number, "unknown", "unknown", statuses, reason)

    def _silent(self, number: int, silence: str, statuses: list[AttemptStatus]) -> MemberStatus:
        self.unsettled = self.unsettled or not self.answer.lasting
        reason = self._unreachable(silence)
        if any(status.started and not status.ended for status in statuses[-1:]):
            reason += "; according to its records it has begun and not ended"
        return MemberStatus(number, "unknown", "unknown", statuses, reason)

    def _never_began(self, number: int, last: LastWord, statuses: list[AttemptStatus]) -> MemberStatus:
        """The state of a member that ended before it began. It counts as an attempt, so that lists show
        it."""
        attempt = max([self.records.begin.get(number, 0) - 1, *(status.attempt for status in statuses)]) + 1
        folder = self.records.run.path / "attempts" / f"{number}.{attempt}"
        if last.ending == "failed" and last.ended_itself:
            log = self.records.run.script_log(number)
            reason = f"it failed before it wrote any record; see {log}"
            if not log.exists():
                reason = (
                    f"it failed and wrote nothing: its first node may not see {self.records.run.path}, and a "
                    "run directory must lie where all nodes see it; castoff submit --runs-dir names another"
                )
            last = msgspec.structs.replace(last, reason=reason)
        elif last.ending == "failed" and last.reason:
            last = msgspec.structs.replace(last, reason=self._beside_excluded(last.reason))
        self.learnt.append((folder, last))
        one = Attempt(attempt, folder, None, None, None, last)
        return _ended_as(number, [*statuses, one.by_records()])

    def _beside_excluded(self, reason: str) -> str:
        """Why a job does not start, and which hosts its scheduler was asked to exclude."""
        submission = self.records.submission
        if submission is None or not submission.excluded:
            return reason
        hosts = ", ".join(submission.excluded)
        return f"{reason}; it excludes {hosts}, set aside before: castoff resubmit --all-hosts does not"

    def _past(self, number: int, one: Attempt, *, requeued: bool) -> AttemptStatus:
        """An attempt that another one has followed or will follow."""
        if (
            requeued and one.gave_up and one.end is not None
        ):  # Slurm had not answered, and did it all the same
            return one.status("ended", "resume", 0, None, one.end.time)
        if one.is_certain or one.is_active:
            return one.by_records()
        info = self._start_of(self.records.key(number, one.job), one)
        if info is not None and info.stage != "unknown":
            return self._by_scheduler(one, info, requeued=requeued)
        if requeued and (one.end is None or one.end.ending == "cancelled" or one.was_killed):
            reason = f"{self.title} ended it, or lost its nodes, and requeued it"
            if one.end is None:
                return one.status("unknown", "unknown", reason=reason)
            end = one.end
            return one.status("ended", "preempted", end.code, reason, end.time)
        if one.end is None:
            return one.status("unknown", "unknown", reason="it has left no ending")
        return one.by_records()

    def _by_scheduler(self, one: Attempt, info: JobInfo, *, requeued: bool = False) -> AttemptStatus:
        """An attempt whose ending its script could not know or could not write down."""
        if one.end is not None and info.ended_itself:
            ending, code, time = known_ending(one.end.ending), one.end.code, one.end.time
            last = LastWord(ending, code, info.job, info.word, one.end.reason, time, ended_itself=True)
        else:
            own_code = one.end.code if one.end is not None else None
            last = self._last_word(info, own_code or info.exit_code)
        last = msgspec.structs.replace(last, requeued=requeued)
        if info.exit_code is not None or not info.ended_itself:  # squeue tells no code, and less
            self.learnt.append((one.folder, last))
        return one._replace(last=last).by_records()

    def _last_word(self, info: JobInfo, code: int | None) -> LastWord:
        ending = info.ending
        if info.ended_itself and ending == "failed":  # as the script's own codes are
            ending = {os.EX_TEMPFAIL: "walltime", 143: "cancelled"}.get(code or 1, "failed")
        if not code or code > 255:
            code = _CODES.get(ending, 1)
        why = info.why
        if info.cancelled_by not in (None, self.queue.user_name):
            why = f"user {info.cancelled_by} cancelled it"
        return LastWord(ending, code, info.job, info.word, why, info.end, ended_itself=info.ended_itself)

    def _cancelled(self, key: Key | None) -> LastWord | None:
        """How a job ended that its scheduler has forgotten, if castoff cancelled it."""
        if key is None or self.records.cancelled.isdisjoint((key[0], member_job_id(*key))):
            return None
        return LastWord("cancelled", _CODES["cancelled"], key[0])

    def _unreachable(self, silence: str) -> str:
        return f"{self.title} could not be reached: {silence}"

    def _forgotten(self, key: Key | None) -> str:
        job = f"job {key[0]}" if key else "its job"
        return (
            f"{self.title} no longer knows {job}, and no ending was recorded; castoff does not "
            "guess. Read the logs, then resubmit it"
        )


def _ended_as(number: int, statuses: list[AttemptStatus]) -> MemberStatus:
    """The state of a member whose last attempt is over."""
    last = statuses[-1]
    return MemberStatus(
        number, last.state, last.ending, statuses, last.reason if last.state == "unknown" else None
    )
