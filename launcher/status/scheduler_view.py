"""The state of the members of a run on a cluster, from the run's records and the scheduler's answers.

The script's record counts if it says that the program was done, failed, or can be resumed. The script does
not know why it was ended from outside, and writes nothing when it is killed: then the scheduler's answer
counts, which castoff stores in the attempt's folder, since schedulers forget. `table` decides between the
two.
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping
from pathlib import Path

from msgspec.structs import replace

from castoff.launcher.runs.records import LastWord
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, ended_as
from castoff.launcher.schedulers.base_queue import Answer, Queue
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.status.attempt import Attempt
from castoff.launcher.status.evidence import FILES_LAG, Evidence, Sources
from castoff.launcher.status.last_words import cancelled, last_word, last_word_on
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.table import MAY_CHANGE, Job, Next, Records, Verdict, decide

_LONGEST_WORD = 40
"""The number of characters of a scheduler's state that are shown."""


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
        """`answer`: the queue's answer. `history`: what accounting knows of the jobs; None: accounting has
        not answered. `seen`: the attempts that had begun before the queue was asked, as pairs of member and
        number.
        """
        self.records = records
        self.doubtful: set[str] = set()
        """The jobs about which accounting should be asked."""
        self.learnt: list[tuple[Path, LastWord]] = []
        """The scheduler's last words that have to be recorded, each with the attempt's folder."""
        self.unsettled = False
        """Whether the state of a member is unknown now and may become known later."""
        self.stuck: str | None = None
        """Why a member will wait until somebody acts; None: no member does."""
        self._sources = Sources(time.time(), queue.lag, records, answer, history, seen)
        self._queue = queue
        self.members = [self._member(number) for number in records.numbers]
        # In a chain, every member begins with the first job, so a later job does not decide.
        if records.unclear is not None and not self.unsettled:
            self.members = [self._unclear(member) for member in self.members]

    def _member(self, number: int) -> MemberStatus:
        """The state of one member."""
        known = self._sources.evidence(number)
        if known.asks and known.key:
            self.doubtful.add(known.key[0])
        verdict = decide(known.facts).verdict
        self.unsettled = self.unsettled or self._may_change(verdict, known)
        reason = self._words(verdict, known)
        attempts = self.records.attempts.get(number, [])
        statuses = [
            self._past(number, one, requeued=any(later.job == one.job for later in attempts[place + 1 :]))
            for place, one in enumerate(attempts)
            if known.newest is None or one.number < known.newest.number
        ]
        if known.newest:
            statuses.append(self._newest(number, known.newest, known))
        if verdict is Verdict.NEVER_BEGAN:
            statuses.append(self._never_began(number, known, statuses))
        if verdict.state == "ended":
            return ended_as(number, statuses)
        if verdict is Verdict.SILENT and any(one.started and not one.ended for one in statuses[-1:]):
            reason = f"{reason}; according to its records, it began and has not ended"
        unknown = "unknown" if verdict.state == "unknown" else None
        member = MemberStatus(number, verdict.state, unknown, statuses, reason)
        return self._waiting(member, known.info) if verdict is Verdict.WAITS and known.info else member

    def _waiting(self, member: MemberStatus, info: JobInfo) -> MemberStatus:
        """Return a pending member with what the queue reports about its wait."""
        if info.is_held:
            self.stuck = self.stuck or member.reason
        never, start = info.dependency_never_satisfied, None if info.stage == "running" else info.start
        return replace(member, dependency_never_satisfied=never, expected_start=start)

    def _unclear(self, member: MemberStatus) -> MemberStatus:
        """Return the state of a member if another job may or may not have been submitted for it."""
        if member.state in ("pending", "running"):
            return member
        self.unsettled = True
        reason = self._words(Verdict.UNCLEAR)
        return MemberStatus(member.member, "unknown", "unknown", member.attempts, reason)

    def _may_change(self, verdict: Verdict, known: Evidence) -> bool:
        """Whether the verdict on a member may change by waiting."""
        if verdict is Verdict.SILENT:
            return not self._sources.answer.lasting
        if verdict is Verdict.WROTE_NOTHING and known.info and known.info.end is not None:
            return self._sources.now - known.info.end < FILES_LAG
        return verdict in MAY_CHANGE

    def _words(self, verdict: Verdict, known: Evidence | None = None) -> str | None:
        """Return why a member waits or is unknown; None: there is nothing to say."""
        key, info = (known.key, known.info) if known else (None, None)
        waits = info.pending_reason if info else ""
        if info and info.stage == "running" and self.records.plan.sharing:
            waits = f"it waits for its turn in job {info.job}"
        silence = self._sources.silence(key)
        unreachable = f"{self._queue.title} could not be reached: {silence}"
        words = verdict.words.format(
            title=self._queue.title,
            user=self._queue.user_name,
            unreachable=unreachable,
            again=unreachable if silence else "ask again in a few seconds",
            job=key and key[0],
            word=info and info.word[:_LONGEST_WORD],
            meaning=f": {info.why}" if info and info.why else ", a state that castoff does not know",
            waits=self._beside_excluded(waits) if info and info.is_held else waits,
        )
        return words or None

    def _beside_excluded(self, reason: str) -> str:
        """Return why a job does not start, and which hosts castoff asked the scheduler to exclude."""
        submission = self.records.submission
        if submission is None or not submission.excluded:
            return reason
        hosts = ", ".join(submission.excluded)
        excludes = f"it excludes {hosts}, set aside by earlier jobs; castoff resubmit --all-hosts uses them"
        return f"{reason}; {excludes}"

    # Attempts

    def _newest(self, number: int, newest: Attempt, known: Evidence) -> AttemptStatus:
        """Return what users see of a member's newest attempt, which must agree with the verdict on the
        member.
        """
        verdict, queued_again = decide(known.facts).verdict, known.facts.job is Job.PENDING_AGAIN
        if queued_again or known.facts.next is not Next.NONE:
            return self._past(number, newest, requeued=queued_again)
        if verdict is Verdict.BY_SCHEDULER and known.info:
            return self._by_scheduler(newest, known.info)
        if verdict is Verdict.CANCELLED and known.key:
            self.learnt.append((newest.folder, last := cancelled(known.key[0])))
            return newest._replace(last=last).by_records()
        if verdict is Verdict.RUNS:
            return newest.status("running")
        if verdict in (Verdict.FORGOTTEN, Verdict.DONE_OR_KILLED):
            return newest.status("unknown", "unknown", reason=self._words(verdict, known))
        if verdict.state != "unknown" or (
            verdict is Verdict.STRANGE and known.facts.records is not Records.BEGUN
        ):
            return newest.by_records()
        return newest.status("unknown", "unknown")

    def _never_began(self, number: int, known: Evidence, statuses: list[AttemptStatus]) -> AttemptStatus:
        """Return an attempt for a member whose job ended before the attempt began, so that lists show it."""
        attempt = max([self.records.begin.get(number, 0) - 1, *(status.attempt for status in statuses)]) + 1
        folder = self.records.run.path / "attempts" / f"{number}.{attempt}"
        if known.info and known.info.stage == "ended":
            last = last_word(known.info, self._queue.user_name)
        else:
            last = cancelled(known.key[0] if known.key else "")
        if self.records.plan.sharing and last.ending != "cancelled":
            why = f"the job that it shared ended before its turn came ({last.ending})"
            last = replace(last, ending="cancelled", code=143, reason=why)
        elif last.ending == "failed" and last.ended_itself:
            log = self.records.run.script_log(number)
            reason = f"it failed before it wrote any record; see {log}"
            if not log.exists():
                reason = (
                    f"it failed and wrote nothing: its first node may not see {self.records.run.path}, and a "
                    "run directory must lie where all nodes see it; castoff submit --runs-dir names another"
                )
            last = replace(last, reason=reason)
        elif last.ending == "failed" and last.reason:
            last = replace(last, reason=self._beside_excluded(last.reason))
        self.learnt.append((folder, last))
        return Attempt(attempt, folder, None, None, None, last).by_records()

    def _past(self, number: int, one: Attempt, *, requeued: bool) -> AttemptStatus:
        """Return what users see of an attempt before the newest one. `requeued`: a later attempt belongs to
        the same job.
        """
        if requeued and one.gave_up and one.end:  # Slurm had not confirmed the requeue, but did it
            return one.status("ended", "resume", 0, None, one.end.time)
        if one.is_certain or one.is_active:
            return one.by_records()
        key = self.records.key(number, one.job)
        if key and self._sources.history is None:
            self.doubtful.add(key[0])
        info = self._sources.start_of(key, one)
        if info is not None and info.stage != "unknown":
            return self._by_scheduler(one, info, requeued=requeued)
        if requeued and (one.end is None or one.end.ending == "cancelled" or one.was_killed):
            reason = f"{self._queue.title} ended it, or lost its nodes, and requeued it"
            if one.end is None:
                return one.status("unknown", "unknown", reason=reason)
            return one.status("ended", "preempted", one.end.code, reason, one.end.time)
        if one.end is None:
            return one.status("unknown", "unknown", reason="it recorded no ending")
        return one.by_records()

    def _by_scheduler(self, one: Attempt, info: JobInfo, *, requeued: bool = False) -> AttemptStatus:
        """Return what users see of an attempt whose ending the script could not know or record."""
        last = replace(last_word_on(one, info, self._queue.user_name), requeued=requeued)
        # An answer without a code is squeue's; sacct may report more later.
        if info.exit_code is not None or not info.ended_itself:
            self.learnt.append((one.folder, last))
        return one._replace(last=last).by_records()
