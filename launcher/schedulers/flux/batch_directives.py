"""flux batch's directives: those that castoff writes for a job, and those that a job file may set itself.

flux-batch(1) of flux-core 0.88 and Flux's RFC 36. The text of a directive is part of flux batch's command
line.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from castoff.launcher.config.quantities import clock
from castoff.launcher.errors import shown
from castoff.launcher.schedulers.dialect import Dialect
from castoff.launcher.schedulers.table import (
    Job,
    NoField,
    Row,
    Text,
    decided,
    flag,
    replaceable,
    whole_number,
)

OF_LOGIN = ("HOME", "LOGNAME", "PATH", "SHELL", "USER")
"""Variables that a job always gets from the submitter's environment: without flux on PATH, no broker
starts.
"""

_CONDITIONS = {"after": "afterstart"}
"""Names of castoff's conditions that differ in Flux."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./*{}\[\]-]+")

_LOOKS_LIKE_ONE = re.compile(r"[^\w\n]*(?:flux|FLUX):")
"""Matches a line that flux batch takes for a directive, and refuses unless it is directly below the other
directives.
"""


def dependencies(words: str) -> list[str]:
    """Write a dependency such as `afterok:1:2,after:3` for flux batch, as an option for each job."""
    return [
        f"--dependency={_CONDITIONS.get(condition, condition)}:{job}"
        for condition, *jobs in (entry.split(":") for entry in words.split(","))
        for job in jobs
    ]


def directive(name: str, value: str | bool) -> str:
    """Write a directive for flux batch after `#flux:`: an option, or an option for each of the directive's
    names or jobs.

    flux batch splits the line by Python's shlex, where a backslash keeps the next character also inside
    single quotes (DirectiveParser in its job/directives.py).
    """
    if value is True:
        return f"--{name}"
    text = str(value)
    if not text.isprintable() or '"""' in text or "'''" in text:
        field = DIALECT.said_by_fields.get(name, f"directives.{name}")
        raise ValueError(f"{field}: is {shown(text)}, which flux batch does not accept")
    if name == "dependency":
        return " ".join(dependencies(text))
    if name in ("env", "env-remove"):
        return " ".join(f"--{name}={_word(item)}" for item in text.split(","))
    if name in ("setopt", "setattr"):  # one text may hold several: `mpibind=off verbose`
        return " ".join(f"--{name}={_word(item)}" for item in text.split())
    return f"--{name}={_word(text)}"


def _word(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def refused(script: str) -> str | None:
    """Return why flux batch would not accept a script; None: flux batch would."""
    try:
        script.encode()
    except UnicodeEncodeError:
        return "its script is not UTF-8, and flux batch takes nothing else"
    if "\r" in script:
        return "its script holds a carriage return, which flux batch would make a line's end"
    numbers = [number for number, line in enumerate(script.split("\n"), 1) if _LOOKS_LIKE_ONE.match(line)]
    for expected, number in enumerate(numbers, 2):
        if number != expected:  # directives begin on the script's second line
            return (
                f"flux batch would take its line {number} for a directive, as it begins with flux: or FLUX:"
            )
    return None


def _requires(job: Job) -> str | None:
    """Write the required properties of nodes, among them the device type, in the syntax of Flux's RFC 35."""
    kind, constraint = job.request.device_type if job.request.node_devices else None, job.spec.constraint
    return f"{kind} and ({constraint})" if kind and constraint else kind or constraint


def _slots(name: str) -> Callable[[Job], Text]:
    """Return the function that writes one option about slots; a slot is what the job gets of a node."""

    def said(job: Job) -> Text:
        request = job.request
        if request.whole_nodes:
            return True if name == "exclusive" else None
        options = {
            "nslots": str(request.layout.nodes),
            "cores-per-slot": str(request.layout.max_per_node * (request.cores or 1)),
            "gpus-per-slot": str(request.node_devices) if request.node_devices else None,
        }
        return options.get(name)

    return said


def _kept(job: Job) -> str | None:
    spec = job.spec
    if spec.inherit == "all":
        return None
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return ",".join(dict.fromkeys([*OF_LOGIN, *names, *spec.env_from]))


def seconds(text: str) -> int | None:
    """Read a duration in Flux's syntax, minutes or a number with a unit as in 1.5h, in seconds; None: the
    text is not a duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        clocked = re.fullmatch(r"(\d+):(\d+):(\d+)", text)
        return (
            sum(int(part) * unit for part, unit in zip(clocked.groups(), (3600, 60, 1), strict=True))
            if clocked
            else None
        )
    return int(float(match[1]) * {"s": 1, "": 60, "m": 60, "h": 3600, "d": 86400}[match[2]]) or None


def _limit(job: Job) -> str | None:
    return f"{job.request.walltime}s" if job.request.walltime else None


def _walltime(text: str) -> str:
    total = seconds(text)
    if not total:
        raise ValueError("is not a duration")
    return clock(total)


def _nice(urgency: str) -> int:
    if urgency in ("0", "31", "hold", "expedite", "default"):
        raise NoField
    return 16 - whole_number(urgency)


FIELDS = (
    decided("job-name", "name", lambda job: job.request.name, value=str),
    Row("bank", "account"),
    Row("queue", "queue"),
    Row("requires", "constraint", whole=_requires, covers=("constraint", "device_type")),
    # Urgency 0 holds a job, and 31 starts it before all others, which no value of `nice` means.
    Row("urgency", "nice", text=lambda nice: str(16 - nice), value=_nice, bounds=(-14, 15)),
    decided("nodes", "nodes", lambda job: str(job.request.layout.nodes)),
    Row("exclusive", "exclusive", whole=_slots("exclusive"), value=flag),
    decided("nslots", "ranks_per_node", _slots("nslots")),
    decided("cores-per-slot", "cores_per_rank", _slots("cores-per-slot")),
    decided("gpus-per-slot", "devices_per_rank", _slots("gpus-per-slot")),
    decided("time-limit", "walltime", _limit, value=_walltime),
    decided("dependency", "after", lambda job: job.request.after),
    decided("env-remove", "inherit", lambda job: "*" if _kept(job) else None),
    decided("env", "inherit", _kept),
    decided("env-file", "inherit"),
    decided("cwd", "workdir", value=str),
    # castoff never requests a signal from Flux: it reaches all ranks, and ends the brokers of the other nodes
    # (0.88).
    decided("signal", "signal"),
    replaceable("output", whole=lambda _: "{{name}}-{{id.dec}}.out", is_default=True),
)
"""The directives for a job's fields, in the order in which a person would write them."""

DIALECT = Dialect(
    fields=FIELDS,
    needed={"output": "castoff keeps one log for both streams"},
    line=directive,
    sizes=frozenset({"nodes", "nslots", "cores-per-slot", "gpus-per-slot", "exclusive"}),
    streams=frozenset({"output", "error"}),
)
"""The directives that `directives:` may contain for flux batch."""
