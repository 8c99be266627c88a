"""Slurm: sbatch's command line and answer (https://slurm.schedmd.com/sbatch.html)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial

from launcher.errors import CastoffError, printable
from launcher.runs.plan import Plan
from launcher.schedulers.base import Configuration
from launcher.schedulers.command import Silent, answer_of
from launcher.schedulers.directives import own_dependency
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

CONFIGURATION = ["scontrol", "show", "config"]
"""The command whose answer `read_configuration` reads."""

_CONFIGURATION_PATIENCE = 20.0
"""Seconds for it; without an answer a site's profile decides on limits."""


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


def configuration(environ: Mapping[str, str]) -> Configuration:
    """What Slurm says of itself here; nothing where it does not answer: sbatch will say what is wrong."""
    try:
        return read_configuration(answer_of(CONFIGURATION, _CONFIGURATION_PATIENCE, environ))
    except Silent:
        return Configuration()


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


def first(plan: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
    """What submits a plan. `largest`: how many members an array may have; None: any number.

    Raises:
        CastoffError: sbatch cannot be told this run directory.
    """
    count, at_most = plan.array_count, plan.array_at_most
    inherited = plan.inherit if isinstance(plan.inherit, list) else []
    names = ["ALL"] if plan.inherit == "all" else inherited
    behind = own_dependency(plan.directives) if dependency is None else dependency
    found = []
    split = [None] if count is None else parts(range(count), largest or count)
    for part in split:
        environment = variables(run_dir, part)
        words = [_output(run_dir, part), "--export=" + ",".join([*names, *environment])]
        if part and len(split) > 1:
            words.append(_array(part, at_most))
        order = partial(_command, words, run_dir, dependency, (behind or "") if at_most else None)
        found.append(Sending(environment, order, part))
    return found


def again(restart: Restart, largest: int | None) -> list[Sending]:
    """What starts members again: one command for those of each attempt, or several.

    Raises:
        CastoffError: sbatch cannot be told this run directory.
    """
    script, run_dir, begin, dependency = restart.script, restart.run_dir, restart.begin, restart.dependency
    array = directive_in(script, "#SBATCH --array=")
    passed = directive_in(script, "#SBATCH --export=")
    at_most = (array or "").partition("%")[2]
    found = []
    for attempt in sorted(set(begin.values())):
        members = (member for member in begin if begin[member] == attempt)
        for of_it in parts(members, largest or max(begin) + 1):
            part = of_it if array is not None else None
            environment = variables_again(restart, attempt, part)
            words = [_output(run_dir, part)] if restart.submitted else []
            words.append(f"--export={names_again(restart, passed, environment)}")
            if part:
                words.append(_array(part, at_most))
            order = partial(_command, words, run_dir, dependency, (dependency or "") if at_most else None)
            found.append(Sending(environment, order, part))
    return found


def _output(run_dir: str, part: Part | None) -> str:
    check_run_dir(run_dir)
    name = "job-0.log"
    if part is not None:
        # Slurm can add no offset: such a script writes to its member's log by itself.
        name = "slurm-%A_%a.log" if part.offset else "job-%a.log"
    pattern = run_dir.replace("%", "%%")
    return f"--output={pattern}/logs/{name}"


def _array(part: Part, at_most: int | str | None) -> str:
    return f"--array={part.indices}%{at_most}" if at_most else f"--array={part.indices}"


def _command(
    words: list[str], run_dir: str, dependency: str | None, behind: str | None, before: str | None
) -> list[str]:
    """The sbatch command. Its --output, --export and --array replace those of the script's directives.

    `behind`: what else it waits for where it waits for the part before it, for Slurm counts those that run
    at once for each job alone; None: it does not.
    """
    if before and behind is not None:
        dependency = ",".join(filter(None, [behind, f"afterany:{before}"]))
    waits = [] if dependency is None else [f"--dependency={dependency}"]
    return ["sbatch", "--parsable", *words, *waits, f"{run_dir}/job.sh"]
