"""Queries a scheduler about its machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError
from castoff.launcher.schedulers.base_queue import user_name
from castoff.launcher.schedulers.command import SchedulerUnreachable, answer_of
from castoff.launcher.schedulers.machine_info import USER, MachineInfo, Question
from castoff.launcher.schedulers.registry import queued, queued_of

_PATIENCE = 60.0
"""Seconds to wait for each answer: a large machine has many nodes."""


class QueryFailed(CastoffError):
    """The scheduler's commands are missing, or the scheduler did not answer. The exit code is 2, as diff's
    for trouble; 1 means a difference.
    """

    exit_code = 2


def ask(site: Site, environ: Mapping[str, str] = os.environ, *, patience: float = _PATIENCE) -> MachineInfo:
    """Query the scheduler of this machine, which is assumed to be the site.

    `patience`: seconds for each answer.

    Raises:
        QueryFailed: the scheduler's commands are missing, or it does not answer; with its message.
    """
    if queued(site.scheduler) is None:
        raise QueryFailed(f"site {site.name}: has no scheduler to query; castoff itself runs its jobs")
    return ask_scheduler(site.scheduler, environ, about=f"site {site.name}", patience=patience)


def questions_of(name: str) -> Sequence[Question]:
    """Return the questions for a scheduler about its machine."""
    return queued_of(name).machine().questions


def _answer(question: Question, patience: float, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the output of a question's command; or None, and why the command did not answer."""
    argv = [word.replace(USER, user_name(str(os.geteuid()))) for word in question.argv]
    try:
        return answer_of(argv, patience, environ), ""
    except SchedulerUnreachable as why:
        return None, f"`{shlex.join(argv)}`: {why}"


def ask_scheduler(
    name: str, environ: Mapping[str, str] = os.environ, *, about: str, patience: float = _PATIENCE
) -> MachineInfo:
    """Query the scheduler of that name, before there is a profile. `about`: the beginning of error messages.

    Raises:
        QueryFailed: as `ask` does.
    """
    questions, parse = queued_of(name).machine()
    answers: dict[str, str] = {}
    unanswered: list[tuple[str, str]] = []
    with ThreadPoolExecutor(len(questions)) as pool:  # a command that hangs does not delay the others
        futures = [(item, pool.submit(_answer, item, patience, environ)) for item in questions]
    for question, future in futures:
        answer, failure = future.result()
        if answer is not None:
            answers[question.about] = answer
        elif not question.optional:
            raise QueryFailed(f"{about}: {failure}")
        else:
            unanswered.append((question.about, failure))
    if not any(answer.strip() for answer in answers.values()):
        commands = ", ".join(f"`{shlex.join(question.argv)}`" for question in questions)
        raise QueryFailed(f"{about}: no output from {commands}")
    try:
        return parse(answers)._replace(unanswered=tuple(unanswered))
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise QueryFailed(
            f"{about}: what {questions[0].argv[0]} and the other commands print cannot be read: {error!r}"
        ) from error
