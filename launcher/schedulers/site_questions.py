"""Asks the scheduler that is here about its machine; the only module that runs these commands."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping

from launcher.config.site import Site
from launcher.errors import CastoffError
from launcher.schedulers.machine import Question, Told
from launcher.schedulers.registry import queued

_PATIENCE = 60.0
"""Seconds for each answer: a large machine has many nodes."""


class CannotAsk(CastoffError):
    """The scheduler is not here, or did not answer. As of diff, 2 is trouble and 1 a difference."""

    exit_code = 2


class _Refused(Exception):
    """A question without an answer; the text says why."""


def ask(site: Site, environ: Mapping[str, str] = os.environ) -> Told:
    """What the scheduler of this machine says, which is taken for the site's.

    Raises:
        CannotAsk: its programs are not here, or it does not answer; with its own words.
    """
    scheduler = queued(site.scheduler)
    if scheduler is None:
        raise CannotAsk(f"site {site.name}: has no scheduler that could be asked; castoff itself is it")
    questions = scheduler.questions
    answers: dict[str, str] = {}
    unanswered: list[tuple[str, str]] = []
    for question in questions:
        try:
            answers[question.about] = _answer(question, environ)
        except _Refused as why:
            if not question.optional:
                raise CannotAsk(f"site {site.name}: {why}") from None
            unanswered.append((question.about, str(why)))
    try:
        return scheduler.told(answers)._replace(unanswered=tuple(unanswered))
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise CannotAsk(
            f"site {site.name}: what {questions[0].argv[0]} and the others answer cannot be read: {error!r}"
        ) from error


def _answer(question: Question, environ: Mapping[str, str]) -> str:
    program = shutil.which(question.argv[0], path=environ.get("PATH", ""))
    if program is None:
        raise _Refused(f"{question.argv[0]} is not on PATH; run this on a login node of the machine")
    # Variables such as SINFO_PARTITION would change what is shown.
    chosen = {name: value for name, value in environ.items() if not name.startswith("SINFO_")}
    command = shlex.join(question.argv)
    try:
        done = subprocess.run(
            [program, *question.argv[1:]],
            env=chosen,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _Refused(f"`{command}` gave no answer within {_PATIENCE:.0f} s") from None
    except OSError as error:
        raise _Refused(f"`{command}` cannot be run: {error.strerror}") from None
    if done.returncode:
        said = " ".join((done.stderr.strip() or done.stdout.strip() or "without a word").split())
        raise _Refused(f"`{command}` failed with exit code {done.returncode}: {said}")
    return done.stdout
