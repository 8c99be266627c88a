"""What `castoff --help` prints, without click, whose import would take twice as long as all of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

VERBS = {
    "alloc": "Open a shell in an interactive allocation.",
    "cancel": "End runs.",
    "clean": "Remove the directories of runs that are over.",
    "completion": "Print the completion script for a shell.",
    "doctor": "Show who else could change what will run.",
    "explain": "Show this process's rank, and how it is known.",
    "import": "Write a job file for a script that you have.",
    "init": "Write a commented job file to start from.",
    "launch": "Start ranks here and now.",
    "list": "List your runs.",
    "logs": "Print a run's logs, or follow them.",
    "render": "Print the script that a scheduler gets.",
    "resubmit": "Restart a run that is over, in its directory.",
    "schema": "Print the JSON schema of job files.",
    "shell": "Open a shell beside a rank of a running job.",
    "sites": "List the sites, show one, check one, or make one.",
    "status": "Show the state of a run.",
    "stop": "Ask runs to save their state and end.",
    "submit": "Submit a job.",
    "train": "Train a network that comes with castoff.",
    "trust": "Trust those who can write to a folder, or list those folders.",
    "wait": "Wait until runs are over; exit with their code.",
}

ABOUT = (
    "From one job file to ranks that know who they are.",
    "castoff renders the exact script that Slurm or PBS gets, submits it, starts the ranks, sets RANK and "
    "WORLD_SIZE in each, and knows afterwards how it ended. What comes after -- is the program with its "
    "own flags.",
)


def module_of(verb: str) -> str:
    """The module in which a verb is: `import` is a word that Python keeps for itself."""
    return f"launcher.cli.{verb}_" if verb == "import" else f"launcher.cli.{verb}"


_OPTIONS = {
    "--version": "Show the version and exit.",
    "-h, --help": "Show this message and exit.",
}


def help_text() -> str:
    """The help of castoff itself, as wide as click would make it here."""
    import textwrap  # late: those who call a verb need the names alone

    width = max(min(_columns(), 80) - 2, 50)
    about = [textwrap.fill(words, width, initial_indent="  ", subsequent_indent="  ") for words in ABOUT]
    lists = [_listed("Options", _OPTIONS, width), _listed("Commands", VERBS, width)]
    return "\n\n".join(["Usage: castoff [OPTIONS] [COMMAND] [ARGS]...", *about, *lists])


def _listed(title: str, entries: Mapping[str, str], width: int) -> str:
    import textwrap

    indent = max(map(len, entries)) + 4
    lines = [
        textwrap.fill(words, width, initial_indent=f"  {name}".ljust(indent), subsequent_indent=indent * " ")
        for name, words in entries.items()
    ]
    return "\n".join([f"{title}:", *lines])


def _columns() -> int:
    """The width of the terminal; as shutil has it, whose import would take a tenth of the time."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0 and sys.__stdout__ is not None:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns
        except (OSError, ValueError):  # it is not a terminal, or was closed
            columns = 0
    return columns if columns > 0 else 80
