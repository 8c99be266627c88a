"""PBS: qsub's command line and answer (qsub(1B) of OpenPBS)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from launcher.errors import CastoffError, printable
from launcher.runs.plan import Plan
from launcher.schedulers.orders import (
    ELSEWHERE,
    Part,
    Restart,
    Sending,
    directive_in,
    names_again,
    variables,
    variables_again,
)

_QSUB = ("qsub", "-f")
"""In the foreground: else qsub leaves a process behind that submits for later ones, and would hold the run's
lock for a minute (qsub(1B))."""


def check_run_dir(run_dir: str) -> None:
    """Make sure that PBS can be told a run directory.

    Raises:
        CastoffError: it cannot.
    """
    if not (run_dir.isascii() and run_dir.isprintable()):  # prepare_path() in src/lib/Libcmds
        raise CastoffError(f"{printable(run_dir)}: qsub's -o takes a path of plain ASCII; {ELSEWHERE}")


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


def first(plan: Plan, run_dir: str, dependency: str | None) -> list[Sending]:
    """What submits a plan: a job, or a chain of them.

    Raises:
        CastoffError: qsub cannot be told this run directory.
    """
    count = plan.array_count or 1
    whole = Part(range(count)) if count > 1 else None
    links = range(1 + plan.requeue_max) if plan.requeue_how == "chain" else [None]
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    found = []
    for link in links:
        environment = variables(run_dir, link=link)
        words = [*_output(run_dir, in_array=whole is not None), "-v", ",".join([*inherited, *environment])]
        found.append(Sending(environment, partial(_command, words, run_dir, dependency, link), whole, link))
    return found


def again(restart: Restart) -> list[Sending]:
    """What starts members again: a command for neighbours with the same attempt, or a chain.

    Raises:
        CastoffError: qsub cannot be told this run directory.
    """
    script, run_dir = restart.script, restart.run_dir
    in_array = directive_in(script, "#PBS -J ") is not None
    links: list[tuple[list[int], int | None]] = [([0], link) for link in range(restart.chain)]
    found = []
    for members, link in links or [(members, None) for members in _spans(restart.begin)]:
        environment = variables_again(restart, restart.begin[members[0]], link=link)
        names = names_again(restart, directive_in(script, "#PBS -v "), environment)
        words = [*(_output(run_dir, in_array=in_array) if restart.submitted else []), "-v", names]
        if in_array:
            # qsub refuses 3-3 but takes 3-4:2, which is 3 alone (chk_Jrange.c of OpenPBS 23).
            begin, end = members[0], members[-1]
            words += ["-J", f"{begin}-{end}" if end > begin else f"{begin}-{begin + 1}:2"]
        order = partial(_command, words, run_dir, restart.dependency, link)
        found.append(Sending(environment, order, Part(members) if in_array else None, link))
    return found


def _output(run_dir: str, *, in_array: bool) -> list[str]:
    check_run_dir(run_dir)
    return ["-o", f"{run_dir}/logs/job-{'^array_index^' if in_array else '0'}.log"]


def _command(
    words: list[str], run_dir: str, dependency: str | None, link: int | None, before: str | None
) -> list[str]:
    """The qsub command. Its -o and -v replace those of the script's directives."""
    if before and link:  # it goes on where another stopped early
        dependency = f"afternotok:{before}"
    waits = ["-W", f"depend={dependency}"] if dependency else []
    return [*_QSUB, *words, *waits, f"{run_dir}/job.sh"]


def _spans(begin: Mapping[int, int]) -> Iterator[list[int]]:
    """Neighbouring members that begin with the same attempt: qsub takes one range."""
    members = sorted(begin)
    first = 0
    for at, member in enumerate(members):
        following = members[at + 1] if at + 1 < len(members) else None
        if following != member + 1 or begin[following] != begin[member]:
            yield members[first : at + 1]
            first = at + 1
