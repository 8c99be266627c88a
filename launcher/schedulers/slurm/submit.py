"""Slurm: sbatch's command line and answer (https://slurm.schedmd.com/sbatch.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from launcher.errors import CastoffError, printable
from launcher.schedulers.submission import (
    ELSEWHERE,
    Order,
    Part,
    Submission,
    directive_in,
    names_again,
    variables_again,
)

CONFIGURATION = ["scontrol", "show", "config"]
"""The command whose answer `read_configuration` reads."""


class Configuration(NamedTuple):
    """What Slurm says of itself; None where it does not."""

    cluster: str | None = None
    """Its name: slurm.conf's ClusterName."""
    largest_array: int | None = None
    """How many members an array may have, by MaxArraySize and max_array_tasks."""


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


def cancel_command(jobs: Iterable[str]) -> list[str]:
    """The scancel command that ends jobs, whole arrays too."""
    return ["scancel", *jobs]
