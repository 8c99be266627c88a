"""flux batch's command line and answer (flux-batch(1) of flux-core 0.88)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from launcher.errors import CastoffError, printable
from launcher.runs.plan import Plan
from launcher.schedulers.flux.directives import dependencies
from launcher.schedulers.orders import ELSEWHERE, Restart, Sending, variables, variables_again

_FROM = "CASTOFF_SUBMITTED_FROM"
"""Tells a script where it was submitted: its own working directory is the run's, which is its job's tag."""

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def decimal(job: str) -> str | None:
    """A job's id as a number; None: it is none. flux batch prints `ƒ…`, in base 58, or `f…` in ASCII."""
    if re.fullmatch(r"[0-9]{1,20}", job):
        return job
    if not re.fullmatch(rf"[fƒ][{_ALPHABET}]{{1,12}}", job):
        return None
    number = 0
    for letter in job[1:]:
        number = number * 58 + _ALPHABET.index(letter)
    return str(number)


def f58(job: str) -> str:
    """The number as Flux itself writes it where there is ASCII alone."""
    number, letters = int(job), ""
    while number or not letters:
        number, letter = divmod(number, 58)
        letters = _ALPHABET[letter] + letters
    return f"f{letters}"


def parse_submit(answer: str) -> str | None:
    """The id that flux batch prints alone, as a number; None if there is none."""
    return decimal(answer.strip())


def was_refused(code: int, words: str) -> bool:
    """Whether a flux batch that failed has certainly queued nothing: it was told no, or reached nobody."""
    return code > 0 and re.search(r"timed? ?out|reset|broken pipe|terminated|protocol", words, re.I) is None


def check_run_dir(run_dir: str) -> None:
    """Make sure that Flux can be told a run directory.

    Raises:
        CastoffError: it cannot.
    """
    if "{{" in run_dir or not run_dir.isprintable():
        raise CastoffError(
            f"{printable(run_dir)}: flux batch would take {{{{ for a template of its own; {ELSEWHERE}"
        )


def first(plan: Plan, run_dir: str, dependency: str | None) -> list[Sending]:
    """What submits a plan: a job, or a chain of them."""
    links = range(1 + plan.requeue_max) if plan.requeue_how == "chain" else [None]
    words = [*_log(run_dir), *_forgetting(plan.env_from)]
    return [_sending(variables(run_dir, link=link), words, run_dir, dependency, link) for link in links]


def again(restart: Restart) -> list[Sending]:
    """What starts a run again: a job, or a chain of them."""
    links = range(restart.chain) if restart.chain else [None]
    words: list[str] = []
    if restart.submitted:  # else its log is where its own directive says
        needed = re.findall(r"^castoff_need (\w+)$", restart.script, re.MULTILINE)
        words = [*_log(restart.run_dir), *_forgetting(needed)]
    return [
        _sending(
            variables_again(restart, restart.begin[0], link=link),
            words,
            restart.run_dir,
            restart.dependency,
            link,
        )
        for link in links
    ]


def _log(run_dir: str) -> list[str]:
    check_run_dir(run_dir)
    return [f"--output={run_dir}/logs/job-0.log", "--setopt=output.mode=append"]


def _forgetting(names: Sequence[str]) -> list[str]:
    """No job's record shall hold what the script reads in its run directory."""
    return [f"--env-remove={name}" for name in names]


def _sending(
    environment: dict[str, str], words: list[str], run_dir: str, dependency: str | None, link: int | None
) -> Sending:
    told = [f"--cwd={run_dir}", *words, *(f"--env={name}" for name in environment), f"--env={_FROM}=$PWD"]
    return Sending(environment, partial(_command, told, run_dir, dependency, link), link=link)


def _command(
    words: list[str], run_dir: str, dependency: str | None, link: int | None, before: str | None
) -> list[str]:
    if before and link:  # it goes on where another stopped early
        dependency = f"afternotok:{before}"
    waits = dependencies(dependency) if dependency else []
    return ["flux", "batch", *words, *waits, f"{run_dir}/job.sh"]
