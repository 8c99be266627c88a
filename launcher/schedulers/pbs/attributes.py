"""The text of -W: attributes of a job by their names, and back; and which castoff sets itself. Pure.

As parse_equal_string() of OpenPBS reads it (src/lib/Libcmds/parse_equal.c). Of what the command line and the
script say, qsub takes each attribute once: depend, stagein, stageout, group_list and sandbox from the command
line, others from the script (seen on 23.06.06 and on cd7ab5e).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from castoff.launcher.errors import shown

# Compiled where they are used, as most jobs need none of them.
_ATTRIBUTE = r"""(?sx)\s*([^\s=,][^\s=]*)\s*=\s*  # a name
    (?:"([^"]*)"|'([^']*)'|((?!["'])[^=]*?))\s*  # a value up to the last comma before another name and =
    (?:\Z|,(?=\s*[^\s=,]+\s*=))"""

_CONDITIONS = r"(?i)\s*(after|afterok|afternotok|afterany)\s*:"

_INSTEAD = {
    "block": "qsub would wait for the job's end: drop it; `castoff wait` waits for a run",
    "interactive": "castoff submits a script: drop it; `qsub -I` gets a shell",
    "sandbox": "PBS would delete the job's log with its private folder: drop it (use stage)",
    "max_run_subjobs": "set array.max_concurrent instead",
    "resource_list": "write each resource by its name, as in directives: {place: scatter}",
    "job_name": "set name instead",
    "account_name": "set account instead",
    "destination": "set queue instead",
    "queue": "set queue instead",
    "mail_users": "set mail.to instead",
    "mail_points": "set mail.on instead",
    "variable_list": "set inherit or env_from instead",
    "rerunable": "set requeue.max instead",
    "array_indices_submitted": "set array instead",
    "output_path": "castoff keeps the job's log in the run's directory: drop it",
    "error_path": "castoff keeps the job's log in the run's directory: drop it",
    "join_path": "castoff keeps one log for both streams: drop it",
    "keep_files": "set directives.k instead",
}
"""Attributes that castoff itself sets, or that a run cannot have, each with why."""


NAMES = frozenset(
    {
        *("depend", "group_list", "umask", "stagein", "stageout", "sandbox", "block", "run_count"),
        *("release_nodes_on_stageout", "tolerate_node_failures", "max_run_subjobs"),
    }
)
"""Attributes that users take for resources."""


def parse_attributes(text: str) -> dict[str, str]:
    """The attributes of `group_list=lab,umask=027`, in their order; of one that appears twice the last value.

    Raises:
        ValueError: qsub would refuse it, or make of it what nobody means.
    """
    found, at = {}, 0
    while at < len(text) and (one := re.compile(_ATTRIBUTE).match(text, at)):
        name, *values = one.groups()
        found[name] = next(value for value in values if value is not None)
        at = one.end()
    if not found or at < len(text) or any(not one or one.endswith(",") for one in found.values()):
        hint = "; a value that holds = stands in quotes" if text.count("=") > 1 else ""
        raise ValueError(f"is {shown(text)}, but takes attributes, as in group_list=lab,umask=027{hint}")
    return found


def attributes_text(attributes: Mapping[str, str]) -> str:
    """Attributes as -W takes them.

    Raises:
        ValueError: a value cannot be said there.
    """
    return ",".join(f"{name}={_value(name, value)}" for name, value in attributes.items())


def _value(name: str, value: str) -> str:
    if "=" not in value and value == value.strip() and value[:1] not in ("'", '"'):
        return value
    quote = "'" if '"' in value else '"'
    if quote in value:
        raise ValueError(f"has {name} as {shown(value)}, but PBS cannot hold both ' and \" there")
    return f"{quote}{value}{quote}"


def merged(*texts: str | bool | None) -> str | None:
    """Attributes of several texts, each by its name, the later one's value counting; None: there are none.

    Raises:
        ValueError: one of them is wrong.
    """
    together: dict[str, str] = {}
    for text in texts:
        for name, value in parse_attributes(text).items() if isinstance(text, str) else ():
            known = next((other for other in together if other.lower() == name.lower()), name)
            together[known] = value
    return attributes_text(together) or None


def dependency(text: str | bool | None) -> str | None:
    """What a text says of `depend`; None: nothing, or it cannot be read."""
    with contextlib.suppress(ValueError):
        attributes = parse_attributes(text) if isinstance(text, str) else {}
        return next((value for name, value in attributes.items() if name.lower() == "depend"), None)
    return None


def waits_by_after(text: str | bool) -> bool:
    """Whether a text waits for jobs in a way that the field `after` has."""
    return re.match(_CONDITIONS, dependency(text) or "") is not None


def check(text: str) -> None:
    """See that no attribute is among those that castoff sets itself.

    Raises:
        ValueError: one is, or the text is wrong.
    """
    for name in parse_attributes(text):
        if why := _INSTEAD.get(name.lower()):
            raise ValueError(f"sets {name}: {why}")
