"""The table that decides what became of a run's member: the first row that fits the facts about the member.

`evidence`, or `local_view` if castoff itself schedules the run, first reduces the records and the answers of
queue and accounting to `Facts`. `scheduler_view` acts on the verdict.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from functools import cache
from typing import NamedTuple

_NO_ENDING = "no ending was recorded; castoff does not guess. Read the logs, then resubmit it"


class Records(Flag):
    """What the run directory shows of a member: of its submission, or of the submission's newest attempt."""

    LEFT_OUT = auto()  # the newest submission does not start the member, but an earlier one did
    REFUSED = auto()  # the submission certainly failed
    SENDING = auto()  # the member is being submitted now
    UNSENT = auto()  # the member has not been submitted
    UNCLEAR = auto()  # the submission may or may not have arrived
    NOT_BEGUN = auto()  # the member was submitted, and its script has written nothing
    BEGUN = auto()  # the attempt has begun, and recorded no ending
    CERTAIN = auto()  # the attempt has ended, and its record of the ending is final
    DOUBTFUL = auto()  # the script was cancelled, or asked for a requeue in vain: the job may be queued again
    KILLED = auto()  # a rank failed by a signal, which the scheduler may have sent
    RESUMES = auto()  # the script ended, and asked for the run to be resumed
    REQUEUED = auto()  # the scheduler had requeued the job when it was last asked


class Job(Flag):
    """What the queue reports of a member's job."""

    UNNAMED = auto()  # no record names the job
    NAMED_LATER = auto()  # no record names the job yet, since the script has just begun
    SILENT = auto()  # the queue did not answer
    SILENT_HERE = auto()  # the queue cannot be asked from this host, now or later
    PENDING = auto()  # the job waits, or waited before the attempt began
    PENDING_AGAIN = auto()  # the job waits, although the attempt had begun before the queue was asked
    RUNNING = auto()
    STRANGE = auto()  # the job is listed in a state that castoff does not know
    OVER = auto()  # the job is listed as ended, or not listed


class End(Flag):
    """How a job that is over ended, according to accounting or else to the queue."""

    NOTHING = auto()  # neither accounting nor the queue knows
    STRANGE = auto()  # accounting lists the job in a state that castoff does not know
    LATE = auto()  # the job ended a moment ago, and accounting may not list its end yet
    DONE = auto()  # the script ended well
    DONE_OR_KILLED = auto()  # the scheduler does not distinguish the two, and no record does
    CANCELLED = auto()  # somebody certainly cancelled the job
    OTHERWISE = auto()


class Next(Flag):
    """What the queue reports of the next job, which resumes an attempt that is over."""

    NONE = auto()  # there is no next job, or it ended before it began
    SILENT = auto()
    PENDING = auto()
    BEGINS = auto()  # the next job runs and has written nothing, or waits until the attempt's own job is gone
    STRANGE = auto()
    CANCELLED = auto()


class Verdict(Enum):
    """What became of a member: its state, and a message about why it waits or is unknown."""

    RECORDED = "ended", "as its last attempt's records say"
    BY_SCHEDULER = "ended", "as its scheduler says"
    CANCELLED = "ended", "as castoff had requested"
    NEVER_BEGAN = "ended", "before its next attempt began"
    SENDING = "pending", "it is being submitted now"
    WAITS = "pending", "{waits}"
    BEGINS = "pending", "its next attempt is about to begin"
    RUNS = "running", ""
    WRITES_LATER = "running", "its script has not written anything yet"
    UNSENT = "unknown", "nothing was submitted for it"
    UNCLEAR = "unknown", "there was no answer, so it may or may not have been submitted; {again}"
    UNNAMED = "unknown", "its script recorded no job, so {title} cannot be asked about it; read the logs"
    NAMED_LATER = (
        "unknown",
        "its script has just begun and has not recorded its job yet; ask again in a few seconds",
    )
    SILENT = "unknown", "{unreachable}"
    STRANGE = "unknown", "{title} reports job {job} as {word}{meaning}; it may be running"
    FORGOTTEN = "unknown", "{title} no longer knows job {job}, and " + _NO_ENDING
    WROTE_NOTHING = (
        "unknown",
        "{title} reports {word}, but its script has written nothing into the run directory",
    )
    DONE_OR_KILLED = (
        "unknown",
        "{title} reports success, as it does even for jobs of {user} that were killed, and " + _NO_ENDING,
    )

    def __init__(self, state: str, words: str):
        self.state = state
        """The member's state: pending, running, ended or unknown."""
        self.words = words


MAY_CHANGE = (Verdict.UNCLEAR, Verdict.NAMED_LATER, Verdict.SILENT, Verdict.STRANGE)
"""The verdicts that a later query may change."""


class Facts(NamedTuple):
    """The facts that decide what became of a member."""

    records: Records
    job: Job = Job.OVER
    end: End = End.NOTHING
    next: Next = Next.NONE
    cancelled: bool = False
    """Whether castoff has cancelled the member's job."""


class Row(NamedTuple):
    """A verdict, the reason, and the facts that the row is for: any value of each fact that the row does not
    name.
    """

    verdict: Verdict
    why: str
    records: Records = ~Records(0)
    job: Job = ~Job(0)
    end: End = ~End(0)
    next: Next = ~Next(0)
    cancelled: bool | None = None

    def fits(self, facts: Facts) -> bool:
        """Whether the row is for these facts."""
        return (
            facts.records in self.records
            and facts.job in self.job
            and facts.end in self.end
            and facts.next in self.next
            and self.cancelled in (None, facts.cancelled)
        )


AGAIN = Records.RESUMES | Records.REQUEUED
"""The records of an attempt that has ended and is to be started again."""

_DOUBTED = Records.DOUBTFUL | Records.KILLED
_ACTIVE = Job.PENDING | Job.RUNNING
_UNKNOWN = End.NOTHING | End.STRANGE

# fmt: off
GROUPS = {
    "Nothing was submitted": (
        Row(Verdict.RECORDED, "this submission does not start the member, so its earlier records count",
            Records.LEFT_OUT | Records.REFUSED),
        Row(Verdict.SENDING, "the process that holds the run's lock will submit it", Records.SENDING),
        Row(Verdict.UNSENT, "the submitting process is gone", Records.UNSENT),
        Row(Verdict.UNCLEAR, "sbatch or qsub gave no clear answer, and the queue does not show the job yet",
            Records.UNCLEAR),
    ),
    "Another attempt is due": (
        Row(Verdict.WAITS, "a job that had begun waits again, whatever it recorded", job=Job.PENDING_AGAIN),
        Row(Verdict.SILENT, "the next job may run", next=Next.SILENT),
        Row(Verdict.WAITS, "the next job is in the queue", next=Next.PENDING),
        Row(Verdict.BEGINS, "the next job has its nodes, or is the next to start", next=Next.BEGINS),
        Row(Verdict.STRANGE, "the next job may run", next=Next.STRANGE),
        Row(Verdict.NEVER_BEGAN, "the next job was cancelled", next=Next.CANCELLED),
    ),
    "Its records are enough": (
        Row(Verdict.RECORDED, "no scheduler knows more than this record", Records.CERTAIN),
        Row(Verdict.RECORDED, "no better answer will ever come", _DOUBTED, Job.SILENT_HERE),
    ),
    "Its job may not be over": (
        Row(Verdict.UNNAMED, "no scheduler can be asked about it", job=Job.UNNAMED),
        Row(Verdict.NAMED_LATER, "its script will say which job it is", job=Job.NAMED_LATER),
        Row(Verdict.SILENT, "a missing answer proves nothing", job=Job.SILENT | Job.SILENT_HERE),
        Row(Verdict.STRANGE, "a listed job may be running, whatever its state is called", job=Job.STRANGE),
        Row(Verdict.WAITS, "its job is in the queue", Records.NOT_BEGUN, Job.PENDING),
        Row(Verdict.WRITES_LATER, "its job has its nodes", Records.NOT_BEGUN, Job.RUNNING),
        Row(Verdict.BEGINS, "its job is being cleared away, and starts again", AGAIN, _ACTIVE),
        Row(Verdict.RUNS, "no attempt is over while its job has nodes", Records.BEGUN | _DOUBTED, _ACTIVE),
    ),
    "Its job is over": (
        Row(Verdict.NEVER_BEGAN, "it was cancelled while it waited", AGAIN, end=End.CANCELLED),
        Row(Verdict.NEVER_BEGAN, "it was in the queue again, and ended there",
            Records.REQUEUED, end=End.OTHERWISE),
        Row(Verdict.NEVER_BEGAN, "it ended before its script had written anything",
            Records.NOT_BEGUN, end=End.CANCELLED | End.OTHERWISE),
        Row(Verdict.NEVER_BEGAN, "castoff cancelled it, and its scheduler does not contradict",
            AGAIN | Records.NOT_BEGUN, end=_UNKNOWN, cancelled=True),
        # A rank may die of the scheduler's signal before the script gets that signal, and then counts as
        # failed.
        Row(Verdict.CANCELLED, "castoff cancelled it, and its scheduler does not contradict",
            Records.BEGUN | Records.KILLED, end=_UNKNOWN, cancelled=True),
        Row(Verdict.WROTE_NOTHING, "its records may be on another disk", Records.NOT_BEGUN, end=End.DONE),
        Row(Verdict.RUNS, "accounting may still say what killed it",
            Records.BEGUN | Records.KILLED, end=End.LATE),
        Row(Verdict.DONE_OR_KILLED, "nothing shows which of the two happened",
            Records.BEGUN, end=End.DONE_OR_KILLED),
        Row(Verdict.BY_SCHEDULER, "the scheduler knows why it ended the job",
            Records.BEGUN | _DOUBTED, end=End.DONE | End.CANCELLED | End.OTHERWISE),
        Row(Verdict.STRANGE, "a job in accounting may be running, whatever its state is called",
            AGAIN | Records.NOT_BEGUN | Records.BEGUN, end=End.STRANGE, cancelled=False),
    ),
    "Nobody knows more": (
        Row(Verdict.RECORDED, "it is not in the queue, so its records count", AGAIN | _DOUBTED),
        Row(Verdict.FORGOTTEN, "castoff does not guess", Records.NOT_BEGUN | Records.BEGUN),
    ),
}
# fmt: on
"""The rows of the table. Earlier groups win; within a group, no two rows fit the same facts."""

TABLE = tuple(row for rows in GROUPS.values() for row in rows)


@cache
def decide(facts: Facts) -> Row:
    """Return the first row that fits the facts."""
    return next(row for row in TABLE if row.fits(facts))
