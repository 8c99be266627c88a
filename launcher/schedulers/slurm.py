"""Slurm: sbatch's command line and answer (https://slurm.schedmd.com/sbatch.html)."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.errors import CastoffError, printable
from launcher.schedulers.submission import (
    ELSEWHERE,
    ByHand,
    Submission,
    directive_in,
    names_again,
    variables_again,
)


def submit_command(submission: Submission) -> list[str]:
    """The sbatch command. Its --output and --export replace those of the script's directives.

    Raises:
        CastoffError: sbatch cannot be told this run directory.
    """
    plan, run_dir = submission.plan, submission.run_dir
    if "\\" in run_dir:  # sbatch(1), filename pattern: then no % means anything, and \ is left out
        raise CastoffError(
            f"{printable(run_dir)}: Slurm's log files can have no backslash in their path; {ELSEWHERE}"
        )
    pattern = run_dir.replace("%", "%%")
    member = "%a" if plan.array_count else "0"
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    names = ["ALL"] if plan.inherit == "all" else inherited
    command = ["sbatch", "--parsable", f"--output={pattern}/logs/job-{member}.log"]
    command.append("--export=" + ",".join([*names, *submission.environment]))
    if submission.dependency:
        command.append(f"--dependency={submission.dependency}")
    return [*command, submission.script]


def parse_submit(answer: str) -> str | None:
    """The job id that `sbatch --parsable` prints, as `id` or `id;cluster`; None if there is none."""
    first = answer.strip().partition("\n")[0].partition(";")[0]
    return first if first.isdecimal() else None


def resubmissions(script: str, run_dir: str, begin: Mapping[int, int]) -> list[ByHand]:
    """sbatch commands that start members again, in their directory; `begin`: with which attempt each."""
    array = directive_in(script, "#SBATCH --array=")
    passed = directive_in(script, "#SBATCH --export=")
    found = []
    for attempt in sorted(set(begin.values())):
        variables = variables_again(script, run_dir, attempt)
        command = ["sbatch", f"--export={names_again(script, passed, variables)}"]
        if array is not None:
            members = ",".join(str(member) for member in sorted(begin) if begin[member] == attempt)
            at_most = array.partition("%")[2]
            command.append(f"--array={members}%{at_most}" if at_most else f"--array={members}")
        found.append(ByHand(variables, [*command, f"{run_dir}/job.sh"]))
    return found
