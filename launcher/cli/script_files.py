"""Tells job files, scripts and programs apart, by names and directives."""

from __future__ import annotations

from pathlib import Path

JOB_FILES = (".yaml", ".yml", ".json")

INTERPRETERS = {".py": "python", ".sh": "bash"}
"""The interpreter for a script that is not executable, by the file's suffix."""


def is_program(word: str) -> bool:
    """Whether a word names a script, or a program of this machine."""
    from shutil import which  # late: not needed if the command line has `--`

    return word.endswith(tuple(INTERPRETERS)) or which(word) is not None


def directives_in(path: str) -> str | None:
    """The message that a file is a script for sbatch, qsub or flux batch; None if it is not."""
    from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, queued_of
    from castoff.launcher.text.quoting import visible_word

    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            text = file.read(100_000)
    except (OSError, ValueError):
        return None
    for scheduler in map(queued_of, HAVE_DIRECTIVES):
        if scheduler.directive_mark in text:
            command = " ".join(scheduler.submit_command)
            job_file = Path(path).with_suffix(".yaml").name
            writes = f"`castoff import {visible_word(path)} -o {visible_word(job_file)}` converts it"
            return f"is a script for {command}, not a job file; {writes}"
    return None
