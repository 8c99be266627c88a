"""PBS: qsub's command line and answer (qsub(1B) of OpenPBS)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from launcher.errors import CastoffError, printable
from launcher.runs.plan import Plan
from launcher.schedulers.orders import (
    ELSEWHERE,
    Order,
    Part,
    Restart,
    Sending,
    Submission,
    directive_in,
    names_again,
    variables_again,
)

_QSUB = ("qsub", "-f")
"""In the foreground: else qsub leaves a process behind that submits for later ones, and would hold the run's
lock for a minute (qsub(1B))."""


def is_array(script: str) -> bool:
    """Whether a script's own directives make an array."""
    return directive_in(script, "#PBS -J ") is not None


def submit_command(submission: Submission) -> list[str]:
    """The qsub command. Its -o and -v replace those of the script's directives.

    Raises:
        CastoffError: qsub cannot be told this run directory.
    """
    plan = submission.plan
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    command = [*_QSUB, *_output(submission.run_dir, in_array=(plan.array_count or 1) > 1)]
    command += ["-v", ",".join([*inherited, *submission.environment])]
    return [*command, *_dependency(submission.dependency), submission.script]


def check_run_dir(run_dir: str) -> None:
    """Make sure that PBS can be told a run directory.

    Raises:
        CastoffError: it cannot.
    """
    if not (run_dir.isascii() and run_dir.isprintable()):  # prepare_path() in src/lib/Libcmds
        raise CastoffError(f"{printable(run_dir)}: qsub's -o takes a path of plain ASCII; {ELSEWHERE}")


def _output(run_dir: str, *, in_array: bool) -> list[str]:
    check_run_dir(run_dir)
    return ["-o", f"{run_dir}/logs/job-{'^array_index^' if in_array else '0'}.log"]


def _dependency(words: str | None) -> list[str]:
    return ["-W", f"depend={words}"] if words else []


def parse_submit(answer: str) -> str | None:
    """The job id that qsub prints alone, as `3.head` or `7[].head`; None if there is none."""
    first = answer.strip().partition("\n")[0].strip()
    return first if first[:1].isdigit() and " " not in first else None


_NO_ANSWER = re.compile(
    r"timed? ?out|end of file|premature|protocol|no reply|connection reset|broken pipe|server shutting down",
    re.IGNORECASE,
)
"""What qsub says where the server may have taken the job all the same (pbs_messages.c of OpenPBS)."""


def was_refused(code: int, words: str) -> bool:
    """Whether a failed qsub has certainly queued nothing: the server refused, or was not reached."""
    return code > 0 and _NO_ANSWER.search(words) is None


def after_failure(job: str) -> str:
    """What a job waits for that goes on where another stopped early."""
    return f"afternotok:{job}"


class Again(NamedTuple):
    """Neighbouring members that start again with the same attempt."""

    members: list[int]
    attempt: int
    submitted: bool
    """Whether castoff made the run directory, with logs and secrets in it; else a script that stood
    alone did, whose logs are where its own directive says."""
    dependency: str | None
    """None: what the script's own directive says."""
    link: int | None = None
    """Which job of a chain it is."""


def resubmission(script: str, run_dir: str, again: Again) -> Order:
    """The qsub command that starts members again, in their directory.

    Raises:
        CastoffError: qsub cannot be told this run directory.
    """
    in_array = directive_in(script, "#PBS -J ") is not None
    variables = variables_again(script, run_dir, again.attempt)
    if again.link is not None:
        variables["CASTOFF_CHAIN"] = str(again.link)
    passed = directive_in(script, "#PBS -v ")
    command = [*_QSUB]
    if again.submitted:
        command += _output(run_dir, in_array=in_array)
    command += ["-v", names_again(script, passed, variables, secrets_kept=again.submitted)]
    if in_array:
        # qsub refuses 3-3 but takes 3-4:2, which is 3 alone (chk_Jrange.c of OpenPBS 23).
        first, last = again.members[0], again.members[-1]
        command += ["-J", f"{first}-{last}" if last > first else f"{first}-{first + 1}:2"]
    return Order(variables, [*command, *_dependency(again.dependency), f"{run_dir}/job.sh"])


def spans(begin: Mapping[int, int]) -> Iterator[list[int]]:
    """Neighbouring members that begin with the same attempt: qsub takes one range."""
    members = sorted(begin)
    first = 0
    for at, member in enumerate(members):
        following = members[at + 1] if at + 1 < len(members) else None
        if following != member + 1 or begin[following] != begin[member]:
            yield members[first : at + 1]
            first = at + 1


def first(decided: Plan, run_dir: str, dependency: str | None) -> list[Sending]:
    """What submits a plan: a job, or a chain of them."""
    count = decided.array_count or 1
    if decided.requeue_how == "chain":
        links = range(1 + decided.requeue_max)
        return [Sending(None, partial(_order, decided, run_dir, dependency, link), link) for link in links]
    whole = Part(range(count)) if count > 1 else None
    return [Sending(whole, partial(_order, decided, run_dir, dependency, None))]


def _order(
    decided: Plan, run_dir: str, dependency: str | None, link: int | None, before: str | None
) -> Order:
    words = after_failure(before) if before else dependency
    submission = Submission(decided, run_dir, words, link=link)
    return Order(submission.environment, submit_command(submission))


def again(restart: Restart) -> list[Sending]:
    """What starts members again: a command for neighbours with the same attempt, or a chain."""
    if restart.chain:
        links = range(restart.chain)
        return [Sending(None, partial(_again, restart, [0], link), link) for link in links]
    in_array = is_array(restart.script)
    return [
        Sending(Part(members) if in_array else None, partial(_again, restart, members, None))
        for members in spans(restart.begin)
    ]


def _again(restart: Restart, members: list[int], link: int | None, before: str | None) -> Order:
    words = after_failure(before) if before and link else restart.dependency
    which = Again(members, restart.begin[members[0]], restart.submitted, words, link)
    return resubmission(restart.script, restart.run_dir, which)
