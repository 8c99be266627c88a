"""The states of a group's jobs, and the words for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.states import RunStatus, summary, why
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.tree import Branch, tree
from castoff.launcher.status.watch import statuses
from castoff.launcher.text.words import brief

NOT_SUBMITTED, NOT_NEEDED = "not submitted", "not needed"

_ON_THE_WAY = {"done", "removed", "pending", "running", "stopping", NOT_SUBMITTED, NOT_NEEDED}
"""Words for jobs that need nothing of the user."""


class GroupStates:
    """A group, and the status of each job's run at one moment."""

    def __init__(self, group: Group, of_jobs: dict[str, RunStatus | None]):
        self.group = group
        self.statuses = of_jobs
        """By the job's name; None if the job was never submitted, or its run's directory is gone."""
        self.not_needed: set[str] = set()
        """The jobs that wait for a failure that did not happen, and those that wait for such jobs."""
        for name, job in group.jobs.items():
            status = of_jobs[name]
            if status is None or not (status.never_begins or _never_began(status)):
                continue
            hoped = (of_jobs.get(other) for other in job.after.get("afternotok", ()))
            succeeded = any(other is not None and other.ending == "done" for other in hoped)
            if succeeded or not self.not_needed.isdisjoint(job.after.get("afterok", ())):
                self.not_needed.add(name)

    @classmethod
    def of(cls, group: Group, poller: Poller | None = None) -> GroupStates:
        """Ask for the status of every run, with one query to the scheduler.

        Raises:
            CastoffError: something in a run's directory cannot be read.
        """
        runs = {name: job.directory for name, job in group.jobs.items()}
        found = iter(statuses((run for run in runs.values() if run), poller))
        return cls(group, {name: next(found) if run else None for name, run in runs.items()})

    @property
    def waits(self) -> dict[str, list[str]]:
        """The jobs for which each job waits."""
        return {name: job.waits_for for name, job in self.group.jobs.items()}

    @property
    def branches(self) -> list[Branch]:
        """The jobs as a tree."""
        return tree(self.waits)

    def word(self, name: str) -> str:
        """The state of a job in one or two words."""
        status = self.statuses[name]
        if name in self.not_needed:
            return NOT_NEEDED
        if status is not None:
            return "never begins" if status.never_begins else status.word
        return "removed" if self.group.jobs[name].sent else NOT_SUBMITTED

    @property
    def words(self) -> str:
        """How many jobs have each state: `2 of 4 jobs done, 1 running, 1 pending`."""
        counts = Counter(map(self.word, self.statuses))
        done = f"{counts.pop('done', 0)} of {len(self.statuses)} jobs done"
        return ", ".join([done, *(f"{count} {word}" for word, count in counts.items())])

    @property
    def remedy(self) -> str:
        """What the user can do about jobs that failed or were never submitted; empty: nothing."""
        words = {*map(self.word, self.statuses)}
        active = [one for one in self.statuses.values() if one and not (one.over or one.never_begins)]
        if words - _ON_THE_WAY and not active:
            return f"castoff resubmit {self.group.id} starts what is not done again, and what waits for it"
        if NOT_SUBMITTED in words:
            return f"castoff resubmit {self.group.id} submits what was never submitted"
        return ""

    def took(self, name: str, now: float) -> str:
        """How long a job's run took, or has taken so far; empty if it has not begun."""
        status = self.statuses[name]
        short = summary(status) if status and status.state != "pending" else None
        return brief((short.ended or now) - short.started) if short and short.started else ""

    def why(self, name: str) -> str:
        """Why a job waits, other than for jobs of the group, or why it failed; empty for others."""
        status = self.statuses[name]
        if (
            status is None
            or status.ending == "done"
            or name in self.not_needed
            or self._waits_for_others(name, status)
        ):
            return ""
        return next(iter((status.reason or _why_last(status)).splitlines()), "")

    def _waits_for_others(self, name: str, status: RunStatus) -> bool:
        """Whether a job waits for other jobs of the group, as the tree shows."""
        others = (self.statuses.get(other) for other in self.group.jobs[name].waits_for)
        return status.state == "pending" and any(other is None or not other.over for other in others)


def first_code(found: Iterable[RunStatus], groups: Iterable[Group]) -> int:
    """The first exit code that is not 0 of runs that are over, 1 if it is unknown; 0 if there is none.

    Jobs of `groups` that waited for a failure that did not happen do not count.
    """
    ignored = set[str]()
    for states in map(GroupStates.of, groups):
        unneeded = (states.statuses[name] for name in states.not_needed)
        ignored.update(status.directory for status in unneeded if status)
    counted = [run for run in found if run.directory not in ignored]
    return next((code for run in counted if (code := 1 if run.code is None else run.code)), 0)


def _never_began(status: RunStatus) -> bool:
    """Whether a run was cancelled before any of its attempts began."""
    attempts = (attempt for member in status.members for attempt in member.attempts)
    return status.ending == "cancelled" and not any(attempt.started for attempt in attempts)


def _why_last(status: RunStatus) -> str:
    """Why the first member's last attempt ended as it did; empty if that is not recorded."""
    attempts = status.members[0].attempts if status.members else []
    return next(iter(why(attempts[-1].failure, attempts[-1].reason)), "") if attempts else ""
