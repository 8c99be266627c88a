"""Reads and writes the attributes in qsub's -W, and refuses attributes that castoff sets itself. Pure.

castoff reads attributes like OpenPBS's parse_equal_string() (src/lib/Libcmds/parse_equal.c). If the command
line and the script both set an attribute, qsub takes depend, stagein, stageout, group_list and sandbox from
the command line, and other attributes from the script (seen on 23.06.06 and on cd7ab5e).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from castoff.launcher.errors import shown

# The patterns are compiled on use, since most jobs need none of them.
_ATTRIBUTE = r"""(?sx)\s*([^\s=,][^\s=]*)\s*=\s*  # a name
    (?:"([^"]*)"|'([^']*)'|((?!["'])[^=]*?))\s*  # a value up to the last comma before another name and =
    (?:\Z|,(?=\s*[^\s=,]+\s*=))"""

_CONDITIONS = r"(?i)\s*(after|afterok|afternotok|afterany)\s*:"

_INSTEAD = {
    "block": "qsub would wait for the job's end: drop it; `castoff wait` waits for runs",
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
"""Attributes that castoff sets itself, or that a run cannot have, each with advice on what to do instead."""


NAMES = frozenset(
    {
        *("depend", "group_list", "umask", "stagein", "stageout", "sandbox", "block", "run_count"),
        *("release_nodes_on_stageout", "tolerate_node_failures", "max_run_subjobs"),
    }
)
"""Attributes that users mistake for resources."""


def parse_attributes(text: str) -> dict[str, str]:
    """Read attributes, such as `group_list=lab,umask=027`, in their order; if a name is repeated, its last
    value wins.

    Raises:
        ValueError: qsub would refuse or misread the text.
    """
    attributes, position = {}, 0
    while position < len(text) and (match := re.compile(_ATTRIBUTE).match(text, position)):
        name, *values = match.groups()
        attributes[name] = next(value for value in values if value is not None)
        position = match.end()
    if (
        not attributes
        or position < len(text)
        or any(not value or value.endswith(",") for value in attributes.values())
    ):
        hint = "; a value that contains = needs quotes" if text.count("=") > 1 else ""
        raise ValueError(f"is {shown(text)}, but takes attributes, as in group_list=lab,umask=027{hint}")
    return attributes


def attributes_text(attributes: Mapping[str, str]) -> str:
    """Write attributes in the syntax of -W.

    Raises:
        ValueError: -W cannot hold a value.
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
    """Merge the attributes in several texts, of which later texts win; None: there are no attributes.

    Raises:
        ValueError: a text does not contain attributes.
    """
    together: dict[str, str] = {}
    for text in texts:
        for name, value in parse_attributes(text).items() if isinstance(text, str) else ():
            spelling = next((other for other in together if other.lower() == name.lower()), name)
            together[spelling] = value
    return attributes_text(together) or None


def dependency(text: str | bool | None) -> str | None:
    """Return the value of `depend` in a text; None: there is none, or the text cannot be read."""
    with contextlib.suppress(ValueError):
        attributes = parse_attributes(text) if isinstance(text, str) else {}
        return next((value for name, value in attributes.items() if name.lower() == "depend"), None)
    return None


def waits_by_after(text: str | bool) -> bool:
    """Whether a text has a dependency that the field `after` can express."""
    return re.match(_CONDITIONS, dependency(text) or "") is not None


def check(text: str) -> None:
    """Refuse attributes that castoff sets itself.

    Raises:
        ValueError: the text has such an attribute, or is wrong.
    """
    for name in parse_attributes(text):
        if reason := _INSTEAD.get(name.lower()):
            raise ValueError(f"sets {name}: {reason}")
