"""flux batch's directives: what a job asks for in them, and what a job file may say in them itself.

flux-batch(1) of flux-core 0.88 and Flux's RFC 36. A line is words of flux batch's own command line.
"""

from __future__ import annotations

import re

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.directives import Dialect, Directives, Layer, layered

_OF_LOGIN = ("HOME", "LOGNAME", "PATH", "SHELL", "USER")
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
        field = {**DIALECT.owned, **DIALECT.typed}.get(name, f"directives.{name}")
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


DIALECT = Dialect(
    owned={
        "job-name": "name",
        "nodes": "nodes",
        "nslots": "ranks_per_node",
        "cores-per-slot": "cores_per_rank",
        "gpus-per-slot": "devices_per_rank",
        "time-limit": "walltime",
        # Flux's signal reaches all ranks, and ends the brokers of further nodes (0.88): it is never sent.
        "signal": "signal",
        "dependency": "after",
        "env": "inherit",
        "env-remove": "inherit",
        "env-file": "inherit",
        "cwd": "workdir",
    },
    typed={"queue": "queue", "bank": "account", "requires": "constraint", "exclusive": "exclusive"},
    needed={"output": "castoff keeps one log for both streams"},
    line=directive,
    sizes=frozenset({"nodes", "nslots", "cores-per-slot", "gpus-per-slot", "exclusive"}),
    streams=frozenset({"output", "error"}),
)
"""What `directives:` may hold for flux batch."""


HANDLES = frozenset(
    {
        *("name", "nodes", "cores_per_rank", "devices_per_rank", "device_type", "binding", "walltime"),
        "grace",
        *("account", "queue", "constraint", "exclusive", "options", "env_from", "inherit", "directives"),
        *("launcher.name", "launcher.args", "after", "requeue.max", "requeue.how", "requeue.on", "preflight"),
    }
)
"""Fields of a job that are said to it: most in its directives, the others by the commands that submit."""


def directives(spec: JobSpec, site: Site, request: Request) -> Directives:
    """A job's directives, in the order in which a person would write them."""
    asked: Layer = [
        ("job-name", request.name),
        ("bank", spec.account),
        ("queue", spec.queue),
        ("requires", _requires(spec, request)),
        ("nodes", str(request.layout.nodes)),
        *_slots(request),
        ("time-limit", f"{request.walltime}s" if request.walltime else None),
        ("dependency", request.after),
        *_environment(spec),
    ]
    own: Layer = [("output", "{{name}}-{{id.dec}}.out")]
    return layered(asked, own, site, spec, DIALECT)


def _requires(spec: JobSpec, request: Request) -> str | None:
    """Properties of the nodes, in the syntax of Flux's RFC 35; a type of device is one of them."""
    kind = request.device_type if request.node_devices else None
    return f"{kind} and ({spec.constraint})" if kind and spec.constraint else kind or spec.constraint


def _slots(request: Request) -> Layer:
    """A slot is what a job has of a node."""
    if request.whole_nodes:
        return [("exclusive", True)]
    return [
        ("nslots", str(request.layout.nodes)),
        ("cores-per-slot", str(request.layout.max_per_node * (request.cores or 1))),
        ("gpus-per-slot", str(request.node_devices) if request.node_devices else None),
    ]


def _environment(spec: JobSpec) -> Layer:
    if spec.inherit == "all":
        return []
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return [("env-remove", "*"), ("env", ",".join(dict.fromkeys([*_OF_LOGIN, *names, *spec.env_from])))]
