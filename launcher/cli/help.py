"""The output of `castoff --help`, made without click, whose import would take twice as long as everything
else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

GROUPS = {
    "Write a job": {
        "init": "Write a commented job file to start from.",
        "import": "Write a job file for a script that you have.",
        "render": "Print the script that a scheduler gets.",
        "schema": "Print the JSON schema of job files.",
    },
    "Run it": {
        "submit": "Submit a job.",
        "launch": "Start ranks here and now.",
        "alloc": "Open a shell in an interactive allocation.",
        "train": "Train a network that comes with castoff.",
    },
    "Watch it": {
        "top": "Watch your runs on one screen.",
        "list": "List your runs.",
        "status": "Show the state of a run.",
        "logs": "Print a run's logs, or follow them.",
        "usage": "Sum the node-hours of your runs.",
        "results": "Compare the members of arrays, and runs, by a metric.",
        "report": "Write a run's page, with its curves.",
        "pull": "Fetch a run's files from another machine.",
        "wait": "Wait until runs are over; exit with their code.",
        "watch": "Send messages about runs that their jobs could not send.",
        "stacks": "Show where the ranks of a running job are in Python.",
        "shell": "Open a shell beside a rank of a running job.",
    },
    "Control it": {
        "stop": "Ask runs to save their state and end.",
        "cancel": "End runs.",
        "resubmit": "Restart a run that is over, in its directory.",
        "clean": "Remove the directories of runs that are over.",
    },
    "Machine": {
        "on": "Name machines for --on, and install castoff there.",
        "notify": "Name the webhooks for messages about runs.",
        "sites": "List the sites, show one, check one, or make one.",
        "explain": "Show this process's rank, and its source.",
        "doctor": "Check what could keep a job from running.",
        "trust": "Trust those who can write to a folder, or list those folders.",
        "mcp": "Let a coding agent call castoff.",
        "completion": "Print the completion script for a shell.",
    },
}
"""The verbs as the help groups them, with their summaries. Each is a module of castoff.launcher.cli."""

VERBS = {verb: words for group in GROUPS.values() for verb, words in group.items()}

ABOUT = (
    "From a job file to running ranks, and a record of how they ended.",
    "castoff renders the exact script that Slurm, PBS or Flux gets, submits it once, starts the ranks and "
    "sets RANK and WORLD_SIZE in each. After -- comes the program with its own flags. castoff VERB --help "
    "shows each verb's options and examples.",
)


def module_of(verb: str) -> str:
    """The name of a verb's module; `import_` for `import`, which is a keyword of Python."""
    return f"castoff.launcher.cli.{verb}_" if verb == "import" else f"castoff.launcher.cli.{verb}"


_OPTIONS = {
    "--on NAME": "Run the verb on another machine, over SSH (castoff on --help).",
    "--version": "Show the version and exit.",
    "-h, --help": "Show this message and exit.",
}


def help_text() -> str:
    """The help text of castoff itself, wrapped to the width that click would use."""
    import textwrap  # late: calling a verb needs only the names above

    width = max(min(_columns(), 80) - 2, 50)
    about = [textwrap.fill(words, width, initial_indent="  ", subsequent_indent="  ") for words in ABOUT]
    indent = max(map(len, VERBS)) + 4
    lists = [_listed(title, verbs, width, indent) for title, verbs in {**GROUPS, "Options": _OPTIONS}.items()]
    return "\n\n".join(["Usage: castoff VERB [OPTIONS] [ARGUMENTS]...", *about, *lists])


def examples(*lines: str) -> str:
    """The examples at the end of a verb's help, marked so that click does not wrap them."""
    return "\n".join(["\b\nExamples:", *(f"  {line}" for line in lines)])


def _listed(title: str, entries: Mapping[str, str], width: int, indent: int) -> str:
    import textwrap

    lines = [
        textwrap.fill(words, width, initial_indent=f"  {name}".ljust(indent), subsequent_indent=indent * " ")
        for name, words in entries.items()
    ]
    return "\n".join([f"{title}:", *lines])


def _columns() -> int:
    """The terminal's width, like shutil.get_terminal_size, whose import would take a tenth of the time."""
    try:
        columns = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        columns = 0
    if columns <= 0 and sys.__stdout__ is not None:
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns
        except (OSError, ValueError):  # standard output is not a terminal, or is closed
            columns = 0
    return columns if columns > 0 else 80
