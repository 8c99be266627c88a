"""Asks the scheduler that is here about its machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from importlib import import_module

from launcher.config.site import Site
from launcher.errors import CastoffError
from launcher.schedulers.command import Silent, answer_of
from launcher.schedulers.machine import Question, Told
from launcher.schedulers.registry import queued

_PATIENCE = 60.0
"""Seconds for each answer: a large machine has many nodes."""


class CannotAsk(CastoffError):
    """The scheduler is not here, or did not answer. As of diff, 2 is trouble and 1 a difference."""

    exit_code = 2


def ask(site: Site, environ: Mapping[str, str] = os.environ) -> Told:
    """What the scheduler of this machine says, which is taken for the site's.

    Raises:
        CannotAsk: its programs are not here, or it does not answer; with its own words.
    """
    if queued(site.scheduler) is None:
        raise CannotAsk(f"site {site.name}: has no scheduler that could be asked; castoff itself is it")
    machine = import_module(f"launcher.schedulers.{site.scheduler}.machine")
    questions: Sequence[Question] = machine.QUESTIONS
    answers: dict[str, str] = {}
    unanswered: list[tuple[str, str]] = []
    for question in questions:
        try:
            answers[question.about] = answer_of(question.argv, _PATIENCE, environ)
        except Silent as why:
            said = f"`{shlex.join(question.argv)}`: {why}"
            if not question.optional:
                raise CannotAsk(f"site {site.name}: {said}") from None
            unanswered.append((question.about, said))
    try:
        told: Told = machine.parse(answers)
        return told._replace(unanswered=tuple(unanswered))
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise CannotAsk(
            f"site {site.name}: what {questions[0].argv[0]} and the others answer cannot be read: {error!r}"
        ) from error
