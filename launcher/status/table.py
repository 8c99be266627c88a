"""The table that decides what became of a run's member: facts about it, and the first row that fits them.

What the records, the queue and accounting say is reduced to `Facts` first, by `evidence`, or by `local_view`
where castoff itself schedules. What follows from the verdict is in `scheduler_view`.
"""

from __future__ import annotations

from enum import Enum, Flag, auto
from functools import cache
from typing import NamedTuple

_NO_ENDING = "no ending was recorded; castoff does not guess. Read the logs, then resubmit it"


class Records(Flag):
    """What the run directory tells of a member: of its submission, or of the newest attempt of that."""

    LEFT_OUT = auto()  # the newest submission does not start it, but an earlier one did
    REFUSED = auto()  # its submission failed for certain
    SENDING = auto()  # it is just being submitted
    UNSENT = auto()  # no submission has come to it
    UNCLEAR = auto()  # its submission may or may not have arrived
    NOT_BEGUN = auto()  # it was submitted, and has written nothing
    BEGUN = auto()  # its attempt has begun, and recorded no ending
    CERTAIN = auto()  # its attempt has ended, and nothing else can know better how
    DOUBTFUL = auto()  # its script was cancelled, or asked for a requeue in vain: it may be queued again
    KILLED = auto()  # a rank failed by a signal, which its scheduler may have sent
    RESUMES = auto()  # its script ended to be resumed, and has asked for that
    REQUEUED = auto()  # its scheduler had queued it again when it was last asked


class Job(Flag):
    """What the queue tells of the member's job."""

    UNNAMED = auto()  # no record says which job it is
    NAMED_LATER = auto()  # nor does one yet, since its script has just begun
    SILENT = auto()  # the queue did not answer
    SILENT_HERE = auto()  # the queue cannot be asked from this host, now or later
    PENDING = auto()  # it waits, or did when the attempt had not begun yet
    PENDING_AGAIN = auto()  # it waits, although the attempt had begun before the queue was asked
    RUNNING = auto()
    STRANGE = auto()  # it is listed in a state that castoff does not know
    OVER = auto()  # it is listed as ended, or not listed


class End(Flag):
    """How a job that is over ended: as accounting knows it, or else the queue."""

    NOTHING = auto()  # neither knows
    STRANGE = auto()  # accounting lists it in a state that castoff does not know
    LATE = auto()  # it ended a moment ago, and accounting may not have heard of it
    DONE = auto()  # its script ended well
    DONE_OR_KILLED = auto()  # its scheduler does not tell these apart, and it has recorded neither
    CANCELLED = auto()  # somebody cancelled it for certain
    OTHERWISE = auto()


class Next(Flag):
    """What the queue tells of another job that resumes the attempt, once that is over."""

    NONE = auto()  # there is none, or it ended without having begun
    SILENT = auto()
    PENDING = auto()
    BEGINS = auto()  # it runs and has written nothing, or waits until the attempt's own job is gone
    STRANGE = auto()
    CANCELLED = auto()


class Verdict(Enum):
    """What became of a member: its state, and in words why it waits or is unknown."""

    RECORDED = "ended", "as its last attempt's records say"
    BY_SCHEDULER = "ended", "as its scheduler says"
    CANCELLED = "ended", "as castoff has asked for"
    NEVER_BEGAN = "ended", "before it had begun an attempt that was due"
    SENDING = "pending", "it is just being submitted"
    WAITS = "pending", "{waits}"
    BEGINS = "pending", "its next attempt is about to begin"
    RUNS = "running", ""
    WRITES_LATER = "running", "its script has not written anything yet"
    UNSENT = "unknown", "nothing was submitted for it"
    UNCLEAR = "unknown", "there was no answer, so it may or may not have been submitted; {again}"
    UNNAMED = "unknown", "its script recorded no job, so {title} cannot be asked about it; read the logs"
    NAMED_LATER = (
        "unknown",
        "its script has just begun and not recorded its job yet; ask again in a few seconds",
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
        "{title} reports that it ended well, as it does for all jobs of {user} that were killed, and "
        + _NO_ENDING,
    )

    def __init__(self, state: str, words: str):
        self.state = state
        """pending, running, ended or unknown."""
        self.words = words


MAY_CHANGE = (Verdict.UNCLEAR, Verdict.NAMED_LATER, Verdict.SILENT, Verdict.STRANGE)
"""The verdicts that hold only for now."""


class Facts(NamedTuple):
    """All that counts about a member."""

    records: Records
    job: Job = Job.OVER
    end: End = End.NOTHING
    next: Next = Next.NONE
    cancelled: bool = False
    """Whether castoff has cancelled its job."""


class Row(NamedTuple):
    """A verdict, why, and the facts that it holds for: any of each, unless they are named."""

    verdict: Verdict
    why: str
    records: Records = ~Records(0)
    job: Job = ~Job(0)
    end: End = ~End(0)
    next: Next = ~Next(0)
    cancelled: bool | None = None

    def fits(self, facts: Facts) -> bool:
        """Whether it holds for these facts."""
        return (
            facts.records in self.records
            and facts.job in self.job
            and facts.end in self.end
            and facts.next in self.next
            and self.cancelled in (None, facts.cancelled)
        )


AGAIN = Records.RESUMES | Records.REQUEUED
"""What has ended to be started again."""

_DOUBTED = Records.DOUBTFUL | Records.KILLED
_ACTIVE = Job.PENDING | Job.RUNNING
_UNKNOWN = End.NOTHING | End.STRANGE

# fmt: off
GROUPS = {
    "Nothing was submitted": (
        Row(Verdict.RECORDED, "this submission does not start it, so what was before counts",
            Records.LEFT_OUT | Records.REFUSED),
        Row(Verdict.SENDING, "somebody holds the run's lock and will send it", Records.SENDING),
        Row(Verdict.UNSENT, "whoever was to send it is gone", Records.UNSENT),
        Row(Verdict.UNCLEAR, "sbatch or qsub gave no answer, and the queue has not decided", Records.UNCLEAR),
    ),
    "Another attempt is due": (
        Row(Verdict.WAITS, "a job that had begun waits again, whatever it recorded", job=Job.PENDING_AGAIN),
        Row(Verdict.SILENT, "the next job may run", next=Next.SILENT),
        Row(Verdict.WAITS, "the next job is in the queue", next=Next.PENDING),
        Row(Verdict.BEGINS, "the next job has its nodes, or gets its turn", next=Next.BEGINS),
        Row(Verdict.STRANGE, "the next job may run", next=Next.STRANGE),
        Row(Verdict.NEVER_BEGAN, "the next job was cancelled", next=Next.CANCELLED),
    ),
    "Its records are enough": (
        Row(Verdict.RECORDED, "nothing knows better than such a record", Records.CERTAIN),
        Row(Verdict.RECORDED, "no better answer will ever come", _DOUBTED, Job.SILENT_HERE),
    ),
    "Its job may not be over": (
        Row(Verdict.UNNAMED, "no scheduler can be asked about it", job=Job.UNNAMED),
        Row(Verdict.NAMED_LATER, "its script will say which job it is", job=Job.NAMED_LATER),
        Row(Verdict.SILENT, "an answer that is missing says nothing", job=Job.SILENT | Job.SILENT_HERE),
        Row(Verdict.STRANGE, "what is listed may run, whatever its state is called", job=Job.STRANGE),
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
        Row(Verdict.NEVER_BEGAN, "castoff cancelled it, and its scheduler says nothing else",
            AGAIN | Records.NOT_BEGUN, end=_UNKNOWN, cancelled=True),
        # A rank may end by the scheduler's signal before its script has it, and then counts as failed.
        Row(Verdict.CANCELLED, "castoff cancelled it, and its scheduler says nothing else",
            Records.BEGUN | Records.KILLED, end=_UNKNOWN, cancelled=True),
        Row(Verdict.WROTE_NOTHING, "its records may lie elsewhere", Records.NOT_BEGUN, end=End.DONE),
        Row(Verdict.RUNS, "accounting may still say what killed it",
            Records.BEGUN | Records.KILLED, end=End.LATE),
        Row(Verdict.DONE_OR_KILLED, "nothing shows which", Records.BEGUN, end=End.DONE_OR_KILLED),
        Row(Verdict.BY_SCHEDULER, "the scheduler knows why it ended the job",
            Records.BEGUN | _DOUBTED, end=End.DONE | End.CANCELLED | End.OTHERWISE),
        Row(Verdict.STRANGE, "what accounting lists may run, whatever its state is called",
            AGAIN | Records.NOT_BEGUN | Records.BEGUN, end=End.STRANGE, cancelled=False),
    ),
    "Nobody knows more": (
        Row(Verdict.RECORDED, "it is not in the queue, so its records count", AGAIN | _DOUBTED),
        Row(Verdict.FORGOTTEN, "castoff does not guess", Records.NOT_BEGUN | Records.BEGUN),
    ),
}
# fmt: on
"""The rows. Of the groups, an earlier one counts first; within a group, no two rows fit the same facts."""

TABLE = tuple(row for rows in GROUPS.values() for row in rows)


@cache
def decide(facts: Facts) -> Row:
    """The first row that fits."""
    return next(row for row in TABLE if row.fits(facts))
