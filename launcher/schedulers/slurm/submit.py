"""Slurm: sbatch's command line and answer (https://slurm.schedmd.com/sbatch.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from launcher.errors import CastoffError, printable
from launcher.runs.plan import Plan
from launcher.schedulers.base import Configuration
from launcher.schedulers.command import Silent, answer_of
from launcher.schedulers.directives import own_dependency
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

CONFIGURATION = ["scontrol", "show", "config"]
"""The command whose answer `read_configuration` reads."""

_CONFIGURATION_PATIENCE = 20.0
"""Seconds for it; without an answer a site's profile decides on limits."""


class Again(NamedTuple):
    """Members that start again."""

    part: Part
    attempt: int
    submitted: bool
    """Whether castoff made the run directory, with logs and secrets in it; else a script that stood
    alone did, whose logs are where its own directive says."""
    dependency: str | None
    """Empty: none, whatever the script's own directive says. None: that one."""


def parts(members: Iterable[int], largest: int) -> list[Part]:
    """Members as arrays that Slurm takes: it bounds the index, so each part counts from 0 again."""
    found: dict[int, list[int]] = {}
    for member in sorted(members):
        found.setdefault(member // largest * largest, []).append(member)
    return [Part(these, offset) for offset, these in found.items()]


def read_configuration(answer: str) -> Configuration:
    """What `CONFIGURATION` answers."""
    name = re.search(r"^ClusterName *= *(\S+)", answer, re.MULTILINE)
    limits = [int(number) for number in re.findall(r"^MaxArraySize *= *(\d+)", answer, re.MULTILINE)]
    limits += [int(number) for number in re.findall(r"\bmax_array_tasks=(\d+)", answer)]
    return Configuration(name[1] if name else None, min(limits, default=None))


def is_array(script: str) -> bool:
    """Whether a script's own directives make an array."""
    return directive_in(script, "#SBATCH --array=") is not None


def configuration(environ: Mapping[str, str]) -> Configuration:
    """What Slurm says of itself here; nothing where it does not answer: sbatch will say what is wrong."""
    try:
        return read_configuration(answer_of(CONFIGURATION, _CONFIGURATION_PATIENCE, environ))
    except Silent:
        return Configuration()


def submit_command(submission: Submission) -> list[str]:
    """The sbatch command. Its --output, --export and --array replace those of the script's directives.

    Raises:
        CastoffError: sbatch cannot be told this run directory.
    """
    plan = submission.plan
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    names = ["ALL"] if plan.inherit == "all" else inherited
    command = ["sbatch", "--parsable", _output(submission.run_dir, submission.part, plan.array_count)]
    command.append("--export=" + ",".join([*names, *submission.environment]))
    if submission.part:
        command.append(_array(submission.part, plan.array_at_most))
    if submission.dependency is not None:
        command.append(f"--dependency={submission.dependency}")
    return [*command, submission.script]


def resubmission(script: str, run_dir: str, again: Again, before: str | None) -> Order:
    """What starts members again in their directory; `before`: the job of those sent before these.

    Raises:
        CastoffError: sbatch cannot be told this run directory.
    """
    array = directive_in(script, "#SBATCH --array=")
    variables = variables_again(script, run_dir, again.attempt, again.part)
    passed = directive_in(script, "#SBATCH --export=")
    command = ["sbatch", "--parsable"]
    if again.submitted:
        command.append(_output(run_dir, again.part, None if array is None else 1))
    command.append(f"--export={names_again(script, passed, variables, secrets_kept=again.submitted)}")
    at_most = (array or "").partition("%")[2]
    if array is not None:
        command.append(_array(again.part, at_most))
    if before and at_most:
        command.append(f"--dependency={','.join(filter(None, [again.dependency, f'afterany:{before}']))}")
    elif again.dependency is not None:
        command.append(f"--dependency={again.dependency}")
    return Order(variables, [*command, f"{run_dir}/job.sh"])


def _array(part: Part, at_most: int | str | None) -> str:
    return f"--array={part.indices}%{at_most}" if at_most else f"--array={part.indices}"


def check_run_dir(run_dir: str) -> None:
    """Make sure that Slurm can be told a run directory.

    Raises:
        CastoffError: it cannot.
    """
    if "\\" in run_dir:  # sbatch(1), filename pattern: then no % means anything, and \ is left out
        raise CastoffError(
            f"{printable(run_dir)}: Slurm's log files can have no backslash in their path; {ELSEWHERE}"
        )
    if "\n" in run_dir:
        raise CastoffError(
            f"{printable(run_dir)}: squeue's lines can show no path with a line break; {ELSEWHERE}"
        )


def _output(run_dir: str, part: Part | None, array_count: int | None) -> str:
    check_run_dir(run_dir)
    name = "job-0.log"
    if array_count is not None:
        # Slurm can add no offset: such a script writes to its member's log by itself.
        name = "slurm-%A_%a.log" if part and part.offset else "job-%a.log"
    pattern = run_dir.replace("%", "%%")
    return f"--output={pattern}/logs/{name}"


def parse_submit(answer: str) -> str | None:
    """The job id that `sbatch --parsable` prints, as `id` or `id;cluster`; None if there is none."""
    first = answer.strip().partition("\n")[0].partition(";")[0]
    return first if first.isdecimal() else None


_NO_ANSWER = re.compile(
    r"timed out|zero bytes|(receive|send) failure|communication (shutdown|failure)|connection reset|"
    r"transport|protocol|unspecified error",
    re.IGNORECASE,
)
"""What sbatch says where the controller may have taken the job all the same (slurm_errno.c)."""


def was_refused(code: int, words: str) -> bool:
    """Whether a failed sbatch has certainly queued nothing: the controller refused, or was not reached."""
    return code > 0 and _NO_ANSWER.search(words) is None


def first(decided: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
    """What submits a plan. `largest`: how many members an array may have; None: any number."""
    count = decided.array_count
    whole = None if count is None else Part(range(count))
    if count is None or largest is None or count <= largest:
        return [Sending(whole, partial(_order, decided, run_dir, dependency, None))]
    return [
        Sending(part, partial(_order, decided, run_dir, dependency, part))
        for part in parts(range(count), largest)
    ]


def _order(
    decided: Plan, run_dir: str, dependency: str | None, part: Part | None, before: str | None
) -> Order:
    if before and decided.array_at_most:  # Slurm counts those that run at once for each job alone
        if dependency is None:  # what stands on the command line replaces it
            dependency = own_dependency(decided.directives)
        dependency = ",".join(filter(None, [dependency, f"afterany:{before}"]))
    submission = Submission(decided, run_dir, dependency, part)
    return Order(submission.environment, submit_command(submission))


def again(restart: Restart, largest: int | None) -> list[Sending]:
    """What starts members again: one command for those of each attempt, or several."""
    script, begin = restart.script, restart.begin
    in_array = is_array(script)
    found = []
    for attempt in sorted(set(begin.values())):
        members = (member for member in begin if begin[member] == attempt)
        for part in parts(members, largest or max(begin) + 1):
            which = Again(part, attempt, restart.submitted, restart.dependency)
            order = partial(resubmission, script, restart.run_dir, which)
            found.append(Sending(part if in_array else None, order))
    return found
