"""flux batch's directives: what a job asks for in them, and what a job file may say in them itself.

flux-batch(1) of flux-core 0.88 and Flux's RFC 36. A line is words of flux batch's own command line.
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
"""What a job has of its submitter's environment in any case: no broker starts without a PATH to flux."""

_CONDITIONS = {"after": "afterstart"}
"""castoff's conditions that Flux calls otherwise."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./*{}\[\]-]+")

_LOOKS_LIKE_ONE = re.compile(r"[^\w\n]*(?:flux|FLUX):")
"""A line that flux batch takes for a directive, and refuses where none may stand."""


def dependencies(words: str) -> list[str]:
    """`afterok:1:2,after:3` as Flux takes it: an option for each job."""
    return [
        f"--dependency={_CONDITIONS.get(condition, condition)}:{job}"
        for condition, *jobs in (one.split(":") for one in words.split(","))
        for job in jobs
    ]


def directive(name: str, value: str | bool) -> str:
    """An option, or one for each of its names or jobs, as flux batch reads it after `#flux:`.

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
        return " ".join(f"--{name}={_word(one)}" for one in text.split(","))
    if name in ("setopt", "setattr"):  # several stand in one: `mpibind=off verbose`
        return " ".join(f"--{name}={_word(one)}" for one in text.split())
    return f"--{name}={_word(text)}"


def _word(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def refused(script: str) -> str | None:
    """Why flux batch would not take a script; None: it takes it."""
    try:
        script.encode()
    except UnicodeEncodeError:
        return "its script is not UTF-8, and flux batch takes nothing else"
    if "\r" in script:
        return "its script holds a carriage return, which flux batch would make a line's end"
    found = [at for at, line in enumerate(script.split("\n"), 1) if _LOOKS_LIKE_ONE.match(line)]
    for place, at in enumerate(found, 2):
        if at != place:  # directives are its second line and those below
            return f"flux batch would take its line {at} for a directive, as it begins with flux: or FLUX:"
    return None


def _requires(job: Job) -> str | None:
    """Properties of the nodes, in the syntax of Flux's RFC 35; a type of device is one of them."""
    kind, constraint = job.request.device_type if job.request.node_devices else None, job.spec.constraint
    return f"{kind} and ({constraint})" if kind and constraint else kind or constraint


def _slots(name: str) -> Callable[[Job], Text]:
    """What is requested of nodes by one option: a slot is what a job has of a node."""

    def said(job: Job) -> Text:
        request = job.request
        if request.whole_nodes:
            return True if name == "exclusive" else None
        asked = {
            "nslots": str(request.layout.nodes),
            "cores-per-slot": str(request.layout.max_per_node * (request.cores or 1)),
            "gpus-per-slot": str(request.node_devices) if request.node_devices else None,
        }
        return asked.get(name)

    return said


def _kept(job: Job) -> str | None:
    spec = job.spec
    if spec.inherit == "all":
        return None
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return ",".join(dict.fromkeys([*OF_LOGIN, *names, *spec.env_from]))


def seconds(text: str) -> int | None:
    """Seconds of a duration in Flux's form: minutes, or with a unit as in 1.5h; None: it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        clocked = re.fullmatch(r"(\d+):(\d+):(\d+)", text)
        return (
            sum(int(part) * unit for part, unit in zip(clocked.groups(), (3600, 60, 1), strict=True))
            if clocked
            else None
        )
    return int(float(found[1]) * {"s": 1, "": 60, "m": 60, "h": 3600, "d": 86400}[found[2]]) or None


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
    # Of all urgencies, 0 holds a job and 31 starts it before all others: no nice is meant so.
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
    # Flux's signal reaches all ranks, and ends the brokers of further nodes (0.88): it is never sent.
    decided("signal", "signal"),
    replaceable("output", whole=lambda _: "{{name}}-{{id.dec}}.out", is_default=True),
)
"""Which directive says a field, in the order in which a person would write them."""

DIALECT = Dialect(
    fields=FIELDS,
    needed={"output": "castoff keeps one log for both streams"},
    line=directive,
    sizes=frozenset({"nodes", "nslots", "cores-per-slot", "gpus-per-slot", "exclusive"}),
    streams=frozenset({"output", "error"}),
)
"""What `directives:` may hold for flux batch."""
