"""What state the members of a run on Slurm or PBS are in, from its own records and what its scheduler says.

The script's last word counts where it knows best: its program was done, failed, or can go on. It does not
know why it was ended from outside, and writes nothing when it is killed: then the scheduler's word counts,
which is kept in the attempt's folder, since schedulers forget.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from launcher.runs.records import LastWord, Send
from launcher.runs.states import AttemptStatus, MemberStatus, known_ending
from launcher.schedulers.jobs import JobTold, member_job_id
from launcher.schedulers.queue import Answer, Key, Queue
from launcher.status.survey import Attempt, Scene

_CODES = {"done": 0, "cancelled": 143, "preempted": 143, "walltime": 143, "out-of-memory": 137}
"""The code of an attempt of which the scheduler knows the ending and no code; any other: 1."""

_FILES_LAG = 60.0
"""Seconds after which a network file system shows what was written on another host."""

_CLOCKS = 3.0
"""Seconds that the clocks of a node and of the controller may differ."""

_ABOUT_TO_BEGIN = "its next attempt is about to begin"


class Told:
    """What is known of the members of a run."""

    def __init__(
        self,
        run: Scene,
        queue: Queue,
        answer: Answer,
        history: Mapping[str, list[JobTold]] | None,
        seen: Container[tuple[int, int]],
    ):
        """Judge by what a queue has answered, and what accounting knows of jobs; None: it has not answered.

        `seen`: the attempts that had begun before the queue was asked, each as its member and number.
        """
        self.run = run
        self.queue = queue
        self.answer = answer
        self.history = history
        self.seen = seen
        self.now = time.time()
        self.title = queue.title
        self.doubtful: set[str] = set()
        """The jobs about which accounting should be asked."""
        self.learnt: list[tuple[Path, LastWord]] = []
        """Last words to keep, each with the attempt's folder."""
        self.unsettled = False
        """Whether something is unknown only for now."""
        self.stuck: str | None = None
        """Why a member waits until somebody does something."""
        self.members = [self._member(number) for number in run.numbers]
        if run.unclear is not None and not self.unsettled:  # of a chain: no member begins with a later link
            going = ("pending", "running")
            self.members = [one if one.state in going else self._unclear(one) for one in self.members]

    def _member(self, number: int) -> MemberStatus:
        """One member's state."""
        attempts = self.run.attempts.get(number, [])
        own = self.run.own(number)
        newest = own[-1] if own else None
        past = attempts[:-1] if newest else attempts
        statuses = [
            self._past(number, one, requeued=any(next.job == one.job for next in attempts[place + 1 :]))
            for place, one in enumerate(past)
        ]
        send = self.run.place(number) if number in self.run.begin else None
        if send is None:
            return self._left_alone(number, statuses)
        if newest is None:
            return self._not_begun(number, send, statuses)
        before = self.run.following(own[-2]) if len(own) > 1 else None
        return self._begun(number, newest, before or send.job, statuses)

    def _left_alone(self, number: int, statuses: list[AttemptStatus]) -> MemberStatus:
        """A member that nothing was sent off for, by the newest submission."""
        if statuses:
            return _ended_as(number, statuses)
        submission = self.run.submission
        if submission and submission.error is not None:
            return MemberStatus(number, "ended", "failed", [])
        if self.run.alive:
            return MemberStatus(number, "pending", None, [], "it is just being submitted")
        return MemberStatus(number, "unknown", "unknown", [], "nothing was submitted for it")

    def _not_begun(self, number: int, send: Send, statuses: list[AttemptStatus]) -> MemberStatus:
        """A member whose newest attempt has left no record."""
        if send.error is not None:
            return _ended_as(number, statuses) if statuses else MemberStatus(number, "ended", "failed", [])
        if send.job is None:
            if self.run.alive:
                return MemberStatus(number, "pending", None, statuses, "it is just being submitted")
            return self._unclear(MemberStatus(number, "unknown", "unknown", statuses))
        key = self.run.key(number, send.job) or (send.job, None)
        told = self._told(key)
        if told is None and (silence := self._silence(key)):
            return self._silent(number, silence, statuses)
        if told is not None and told.stage == "pending":
            return self._waits(number, told, statuses)
        if told is not None and told.stage == "running":
            return MemberStatus(number, "running", None, statuses, "its script has not written anything yet")
        if told is None or told.ended_itself:
            told = self._newest_start(key) or told
        known = key[0] in self.answer.ids or key[0] in (self.history or {})
        if told is None and known and key[1] is not None:  # an array's member that was cancelled
            return self._never_began(number, LastWord("cancelled", 143, key[0]), statuses)
        if told is None and (last := self._cancelled(key)):
            return self._never_began(number, last, statuses)
        if told is None:
            return MemberStatus(number, "unknown", "unknown", statuses, self._forgotten(key))
        if told.ending in ("done", "unknown"):
            reason = (
                f"{self.title} says {told.word}, but its script has written nothing into the run directory"
            )
            if told.end is not None and self.now - told.end < _FILES_LAG:
                self.unsettled = True
            return MemberStatus(number, "unknown", "unknown", statuses, reason)
        return self._never_began(number, self._last_word(told, told.exit_code), statuses)

    def _begun(
        self, number: int, newest: Attempt, job: str | None, statuses: list[AttemptStatus]
    ) -> MemberStatus:
        """A member of whose newest attempt there are records; of `job`, if they do not yet say so."""
        key = self.run.key(number, newest.job or job)
        told = self._told(key) if key else None
        was_seen = (number, newest.number) in self.seen
        if told is not None and told.stage == "pending" and was_seen:  # it has been queued again since
            return self._waits(number, told, [*statuses, self._past(number, newest, requeued=True)])
        goes_on = told is not None and told.stage in ("pending", "running")
        following = self.run.following(newest) if newest.last is None else None
        so_far = [*statuses, newest.by_records()]
        if following is not None and not (goes_on and newest.end is None):
            if goes_on and newest.next is None:  # a chain's next job waits until this one is gone
                return MemberStatus(number, "pending", None, so_far, _ABOUT_TO_BEGIN)
            followed = self._follows(number, newest, following, statuses)
            if followed is not None:
                return followed
        if newest.is_certain:
            return _ended_as(number, so_far)
        if goes_on:
            if newest.goes_on:
                return MemberStatus(number, "pending", None, so_far, _ABOUT_TO_BEGIN)
            return MemberStatus(number, "running", None, [*statuses, newest.status("running")])
        if told is None and (silence := self._silence(key)):
            if self.answer.lasting and newest.end and not newest.goes_on:
                return _ended_as(number, so_far)
            return self._silent(number, silence, [*statuses, newest.status("unknown", "unknown")])
        if newest.goes_on:
            return self._stopped(number, newest, key, told, so_far)
        if told is None or told.ended_itself:
            start = self._start_of(key, newest)
            # Who was killed for want of memory is known by the accounting of a step alone.
            unheard = newest.was_killed or (start is None and newest.end is None)
            told = start or told
            end = told.end or 0.0 if told is not None and told.ended_itself else 0.0
            if unheard and self.history is not None and self.now - end < self.queue.lag:
                return MemberStatus(number, "running", None, [*statuses, newest.status("running")])
        reason = self._forgotten(key)
        if told is not None and told.stage == "ended":
            if not told.may_have_been_killed or newest.end is not None or newest.finished:
                return _ended_as(number, [*statuses, self._by_scheduler(newest, told)])
            reason = (
                f"{self.title} says that it ended well, as of all jobs of {self.queue.user_name} that "
                "were killed, and no ending was written; castoff does not guess. Read the logs, then "
                "resubmit it"
            )
        elif newest.end is not None:
            return _ended_as(number, so_far)
        elif last := self._cancelled(key):
            self.learnt.append((newest.folder, last))
            return _ended_as(number, [*statuses, newest._replace(last=last).by_records()])
        unknown = newest.status("unknown", "unknown", reason=reason)
        return MemberStatus(number, "unknown", "unknown", [*statuses, unknown], reason)

    def _stopped(
        self,
        number: int,
        newest: Attempt,
        key: Key | None,
        told: JobTold | None,
        statuses: list[AttemptStatus],
    ) -> MemberStatus:
        """A member that was to be started again, and is no longer in the queue."""
        told = told or (self._newest_start(key) if key else None)
        lost = newest.last is not None and told is not None and told.stage == "ended"
        if told is not None and (told.was_cancelled or (lost and told.ending != "done")):
            return self._never_began(number, self._last_word(told, told.exit_code), statuses)
        if told is None and (last := self._cancelled(key)):
            return self._never_began(number, last, statuses)
        return _ended_as(number, statuses)

    def _follows(
        self, number: int, newest: Attempt, job: str, statuses: list[AttemptStatus]
    ) -> MemberStatus | None:
        """A member whose next attempt is another job's, which has left no record; None: it will have none."""
        key = self.run.key(number, job) or (job, None)
        told = self._told(key)
        statuses = [*statuses, self._past(number, newest, requeued=False)]
        if told is None and (silence := self._silence(key)):
            return self._silent(number, silence, statuses)
        if told is not None and told.stage == "pending":
            return self._waits(number, told, statuses)
        if told is not None and told.stage == "running":
            return MemberStatus(number, "pending", None, statuses, _ABOUT_TO_BEGIN)
        if told is not None and told.ending == "cancelled" and not told.is_void:
            return self._never_began(number, self._last_word(told, told.exit_code), statuses)
        if told is None and (last := self._cancelled(key)):
            return self._never_began(number, last, statuses)
        return None

    # Answers

    def _told(self, key: Key) -> JobTold | None:
        """What the queue says of a job; None where it has nothing to say."""
        told = self.answer.jobs.get(key)
        whole = self.answer.jobs.get((key[0], None))
        if told is None and whole and whole.stage in ("pending", "running"):
            told = whole  # it has not come to its members yet
        return told if told and told.stage != "unknown" and self.run.is_told(told) else None

    def _silence(self, key: Key | None) -> str | None:
        """Why the queue has said nothing of a job."""
        return self.answer.silence_on([key[0] if key else None])

    def _starts(self, key: Key) -> list[JobTold]:
        """What accounting knows of a job's starts; whoever asks for it too early has it asked."""
        job, index = key
        if self.history is None:
            self.doubtful.add(job)
        told = (self.history or {}).get(job, [])
        return [one for one in told if one.task == index and self.run.is_told(one)]

    def _newest_start(self, key: Key) -> JobTold | None:
        """How a job ended by accounting; None where it has not, or nobody knows."""
        newest = max(self._starts(key), key=lambda one: one.submitted or 0.0, default=None)
        return newest if newest and newest.stage == "ended" else None

    def _start_of(self, key: Key | None, attempt: Attempt) -> JobTold | None:
        """How the start of a job that an attempt was ended by accounting."""
        if key is None:
            return None
        began = (attempt.start.time if attempt.start else None) or 0.0
        # Those after it are later attempts, which accounting may have heard of before it has of this end.
        starts = [one for one in self._starts(key) if one.start and one.start <= began + _CLOCKS]
        last = max(starts, key=lambda one: one.start or 0.0, default=None)
        return last if last and (last.stage == "ended" or last.was_requeued) else None

    # Statuses

    def _waits(self, number: int, told: JobTold, statuses: list[AttemptStatus]) -> MemberStatus:
        reason = told.waits
        if told.is_stuck:
            self.stuck = self.stuck or reason
        return MemberStatus(number, "pending", None, statuses, reason, told.is_void)

    def _unclear(self, member: MemberStatus) -> MemberStatus:
        """A member of which something was sent that may or may not have arrived."""
        self.unsettled = True
        reason = "there was no answer, so it may or may not have been submitted; "
        silence = self.answer.silence
        reason += self._unheard(silence) if silence else "ask again in some seconds"
        return MemberStatus(member.member, "unknown", "unknown", member.attempts, reason)

    def _silent(self, number: int, silence: str, statuses: list[AttemptStatus]) -> MemberStatus:
        self.unsettled = self.unsettled or not self.answer.lasting
        reason = self._unheard(silence)
        if any(one.started and not one.ended for one in statuses[-1:]):
            reason += "; by its own records it has begun and not ended"
        return MemberStatus(number, "unknown", "unknown", statuses, reason)

    def _never_began(self, number: int, last: LastWord, statuses: list[AttemptStatus]) -> MemberStatus:
        """A member that was ended before it began: an attempt all the same, so that it is told of."""
        attempt = max([self.run.begin.get(number, 0) - 1, *(one.attempt for one in statuses)]) + 1
        folder = self.run.run.path / "attempts" / f"{number}.{attempt}"
        if last.ending == "failed" and last.ended_itself:
            log = self.run.run.script_log(number)
            reason = f"it failed before it wrote any record; see {log}"
            if not log.exists():
                reason = (
                    f"it failed and wrote nothing: its first node may not see {self.run.run.path}, and a run "
                    "directory must lie where all nodes see it; castoff submit --runs-dir names another"
                )
            last = msgspec.structs.replace(last, reason=reason)
        self.learnt.append((folder, last))
        one = Attempt(attempt, folder, None, None, None, last)
        return _ended_as(number, [*statuses, one.by_records()])

    def _past(self, number: int, one: Attempt, *, requeued: bool) -> AttemptStatus:
        """An attempt that others have followed, or that will be followed by one."""
        if (
            requeued and one.gave_up and one.end is not None
        ):  # Slurm had not answered, and did it all the same
            return one.status("ended", "again", 0, None, one.end.time)
        if one.is_certain or one.goes_on:
            return one.by_records()
        told = self._start_of(self.run.key(number, one.job), one)
        if told is not None:
            return self._by_scheduler(one, told, requeued=requeued)
        if requeued and (one.end is None or one.end.ending == "cancelled"):
            reason = f"{self.title} ended it, or lost its nodes, and queued it again"
            if one.end is None:
                return one.status("unknown", "unknown", reason=reason)
            end = one.end
            return one.status("ended", "preempted", end.code, reason, end.time)
        if one.end is None:
            return one.status("unknown", "unknown", reason="it has left no ending")
        return one.by_records()

    def _by_scheduler(self, one: Attempt, told: JobTold, *, requeued: bool = False) -> AttemptStatus:
        """An attempt whose ending the script cannot know, or could not write down."""
        if one.end is not None and told.ended_itself:
            ending, code, time = known_ending(one.end.ending), one.end.code, one.end.time
            last = LastWord(ending, code, told.job, told.word, one.end.reason, time, ended_itself=True)
        else:
            own_code = one.end.code if one.end is not None else None
            last = self._last_word(told, own_code or told.exit_code)
        last = msgspec.structs.replace(last, requeued=requeued)
        if told.exit_code is not None or not told.ended_itself:  # squeue tells no code, and less
            self.learnt.append((one.folder, last))
        return one._replace(last=last).by_records()

    def _last_word(self, told: JobTold, code: int | None) -> LastWord:
        ending = told.ending
        if told.ended_itself and ending == "failed":  # as the script's own codes are
            ending = {os.EX_TEMPFAIL: "walltime", 143: "cancelled"}.get(code or 1, "failed")
        if not code or code > 255:
            code = _CODES.get(ending, 1)
        why = told.why
        if told.cancelled_by not in (None, self.queue.user_name):
            why = f"user {told.cancelled_by} cancelled it"
        return LastWord(ending, code, told.job, told.word, why, told.end, ended_itself=told.ended_itself)

    def _cancelled(self, key: Key | None) -> LastWord | None:
        """What became of a job that its scheduler has forgotten, where castoff itself has cancelled it."""
        if key is None or self.run.cancelled.isdisjoint((key[0], member_job_id(*key))):
            return None
        return LastWord("cancelled", _CODES["cancelled"], key[0])

    def _unheard(self, silence: str) -> str:
        return f"{self.title} could not be asked: {silence}"

    def _forgotten(self, key: Key | None) -> str:
        job = key[0] if key else "(not known)"
        return (
            f"{self.title} knows nothing of job {job} any more and no ending was written; castoff does not "
            "guess. Read the logs, then resubmit it"
        )


def _ended_as(number: int, statuses: list[AttemptStatus]) -> MemberStatus:
    """A member that is as its last attempt is, which is over."""
    last = statuses[-1]
    return MemberStatus(
        number, last.state, last.ending, statuses, last.reason if last.state == "unknown" else None
    )
