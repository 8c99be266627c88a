"""What a person is asked before an agent's job is submitted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import brief, counted

_LONGEST_COMMAND = 400
_DIGITS = 12


def question(jobs: Sequence[Mapping[str, Any]], command: Sequence[str]) -> str:
    """The question whether to submit these jobs.

    `jobs`: what `castoff submit --dry-run --json` prints, an object per job. `command`: the words that would
    submit them. The last line names the scripts by a digest, so that the question differs if anything in them
    does: an answer to an earlier question is none to this one.
    """
    scripts = hashlib.sha256("\0".join(str(job["script"]) for job in jobs).encode()).hexdigest()
    return "\n".join(
        [
            f"Submit {counted(len(jobs), 'job')}?",
            *(f"- {_job(job['plan'])}" for job in jobs),
            f"Command: {' '.join(map(visible_word, command))}",
            f"Script: sha256 {scripts[:_DIGITS]}",
        ]
    )


def _job(plan: Mapping[str, Any]) -> str:
    """A job in one line: what it asks for, and what it runs."""
    size = [counted(plan["nodes"], "node"), counted(plan["ranks"], "rank")]
    if (members := plan["array_count"]) is not None:
        size.append(f"an array of {counted(members, 'member')}")
    walltime = plan["walltime"]
    size.append("no walltime" if walltime is None else f"walltime {brief(walltime)}")
    size += [f"{name} {plan[name]}" for name in ("account", "queue") if plan[name]]
    runs = "a script" if plan["script"] else " ".join(map(visible_word, plan["command"]))
    if len(runs) > _LONGEST_COMMAND:
        runs = f"{runs[:_LONGEST_COMMAND]}…"
    return f"{plan['name']} on {plan['site']} ({plan['scheduler']}): {', '.join(size)}; runs {runs}"
