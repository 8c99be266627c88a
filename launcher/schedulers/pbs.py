"""PBS: qsub's command line and answer (qsub(1B) of OpenPBS)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from launcher.errors import CastoffError, printable
from launcher.schedulers.submission import (
    ELSEWHERE,
    Order,
    Submission,
    directive_in,
    names_again,
    variables_again,
)


def submit_command(submission: Submission) -> list[str]:
    """The qsub command. Its -o and -v replace those of the script's directives.

    Raises:
        CastoffError: qsub cannot be told this run directory.
    """
    plan, run_dir = submission.plan, submission.run_dir
    if not (run_dir.isascii() and run_dir.isprintable()):  # prepare_path() in src/lib/Libcmds
        raise CastoffError(f"{printable(run_dir)}: qsub's -o takes a path of plain ASCII; {ELSEWHERE}")
    member = "^array_index^" if (plan.array_count or 1) > 1 else "0"
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    command = ["qsub", "-o", f"{run_dir}/logs/job-{member}.log"]
    command += ["-v", ",".join([*inherited, *submission.environment])]
    if submission.dependency:
        command += ["-W", f"depend={submission.dependency}"]
    return [*command, submission.script]


def parse_submit(answer: str) -> str | None:
    """The job id that qsub prints alone, as `3.head` or `7[].head`; None if there is none."""
    first = answer.strip().partition("\n")[0].strip()
    return first if first[:1].isdigit() and " " not in first else None


def resubmissions(script: str, run_dir: str, begin: Mapping[int, int]) -> list[Order]:
    """qsub commands that start members again, in their directory; `begin`: with which attempt each."""
    array = directive_in(script, "#PBS -J ")
    passed = directive_in(script, "#PBS -v ")
    found = []
    for first, last in _spans(begin):
        variables = variables_again(script, run_dir, begin[first])
        command = ["qsub", "-v", names_again(script, passed, variables)]
        if array is not None:
            # qsub refuses 3-3 but takes 3-4:2, which is 3 alone (chk_Jrange.c of OpenPBS 23).
            command += ["-J", f"{first}-{last}" if last > first else f"{first}-{first + 1}:2"]
        found.append(Order(variables, [*command, f"{run_dir}/job.sh"]))
    return found


def _spans(begin: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Neighbouring members that begin with the same attempt: qsub takes one range."""
    members = sorted(begin)
    first = 0
    for at, member in enumerate(members):
        following = members[at + 1] if at + 1 < len(members) else None
        if following != member + 1 or begin[following] != begin[member]:
            yield members[first], member
            first = at + 1
