"""sbatch's directives: what a job asks for in them, and what a job file may say in them itself.

https://slurm.schedmd.com/sbatch.html.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.config.job import JobSpec
from launcher.config.quantities import clock
from launcher.config.site import Site
from launcher.quoting import PLAIN_DIRECTIVE, one_line
from launcher.schedulers.base import Dialect
from launcher.schedulers.directives import (
    Directives,
    Layer,
    array_words,
    layered,
    of_scheduler,
    text,
)
from launcher.starters.registry import Request

NAME = "slurm"

_WORDS = {
    *("account", "array", "clusters", "comment", "constraint", "cpus-per-task", "dependency", "error"),
    *("exclude", "exclusive", "export", "gpu-bind", "gpus", "gpus-per-node", "gpus-per-task", "gres"),
    *("job-name", "licenses", "mail-type", "mail-user", "mem-per-cpu", "mem-per-gpu", "network"),
    *("no-requeue", "nodelist", "ntasks", "ntasks-per-node", "open-mode", "output", "partition", "qos"),
    *("requeue", "reservation", "signal", "threads-per-core", "time", "wckey"),
}
"""Options of sbatch that no resource of PBS is called."""

_LETTERS = {
    **{"A": "account", "a": "array", "b": "begin", "C": "constraint", "c": "cpus-per-task", "D": "chdir"},
    **{"d": "dependency", "e": "error", "G": "gpus", "J": "job-name", "L": "licenses", "m": "distribution"},
    **{"M": "clusters", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition", "q": "qos"},
    **{"t": "time", "w": "nodelist", "x": "exclude"},
}


def _meant(name: str) -> str:
    """sbatch reads its options with getopt_long(3), to which the beginning of a name will do."""
    if len(name) == 1:
        return _LETTERS.get(name, name)
    known = {*_WORDS, *DIALECT.owned, *DIALECT.typed}
    return name if name in known else next((word for word in sorted(known) if word.startswith(name)), name)


def _misplaced(name: str) -> str | None:
    if name == "clusters":
        return "sends it where castoff could not ask about it from here; submit on that cluster's login node"
    return "is a short flag; write the long one, as in nodelist for w" if len(name) == 1 else None


def directive(name: str, value: str | bool) -> str:
    """An option as sbatch reads it after `#SBATCH`.

    sbatch splits the line itself (get_argument() in src/sbatch/opt.c): a backslash keeps the next
    character, also inside quotes, and an unquoted # begins a comment.
    """
    if value is True:
        return f"--{name}"
    text = one_line(name, str(value))
    if not PLAIN_DIRECTIVE.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"--{name}={text}"


DIALECT = Dialect(
    owned={
        "nodes": "nodes",
        "ntasks": "ranks",
        "ntasks-per-node": "ranks_per_node",
        "cpus-per-task": "cores_per_rank",
        "array": "array",
        "dependency": "after",
        "time": "walltime",
        "job-name": "name",
        "export": "inherit",
        "requeue": "requeue.max",
        "no-requeue": "requeue.max",
    },
    typed={
        "partition": "queue",
        "account": "account",
        "qos": "qos",
        "constraint": "constraint",
        "reservation": "reservation",
        "exclude": "exclude",
        "exclusive": "exclusive",
        "mem": "memory",
    },
    needed={
        "output": "logs are found through it",
        "open-mode": "a requeued job would overwrite its first log",
        "signal": "the job could not stop before its walltime",
        "requeue": "requeue.max asks for it",
        "no-requeue": "Slurm would start a failed node's job again without castoff's count",
    },
    words=frozenset(_WORDS),
    meant=_meant,
    misplaced=_misplaced,
    line=directive,
    beyond=lambda name, value: (
        (name == "mem" and value == "0") or (name == "exclusive" and value is not True)
    ),
    excluded={"mem-per-cpu": "memory", "mem-per-gpu": "memory"},
)
"""What `directives:` may hold for sbatch."""


def directives(spec: JobSpec, site: Site, request: Request) -> Directives:
    """A job's directives for sbatch, in the order in which a person would write them."""
    asked: Layer = [
        ("job-name", request.name),
        ("account", spec.account),
        ("partition", spec.queue),
        ("qos", spec.qos),
        ("constraint", spec.constraint),
        ("reservation", spec.reservation),
        ("exclude", spec.exclude),
        ("exclusive", spec.exclusive),
        ("nodes", str(request.layout.nodes)),
        ("ntasks-per-node", str(request.layout.most)),
        ("cpus-per-task", text(site.cpus_of(request.cores))),
        *devices(site, request.devices, request.node_devices, request.whole_nodes),
        ("mem", spec.memory),
        ("time", clock(request.walltime) if request.walltime else None),
        ("array", array_words(spec)),
        ("dependency", request.after),
        ("mail-user", spec.mail.to if spec.mail else None),
        ("mail-type", ",".join(spec.mail.on).upper() if spec.mail else None),
    ]
    own: Layer = [
        ("output", "%x-%A_%a.out" if spec.array else "%x-%j.out"),
        ("open-mode", "append"),
        ("signal", f"B:USR2@{request.grace}" if request.walltime else None),
        ("requeue" if spec.requeue.max else "no-requeue", True),
        ("export", _export(spec)),
    ]
    return layered(asked, own, site, spec)


def devices(site: Site, per_task: int, per_node: int, whole_nodes: bool) -> Directives:
    """How Slurm is asked for the job's devices: one directive, or none."""
    if not per_node:
        return []
    if site.gpu_request == "gres":
        return [("gres", f"gpu:{site.gpus_asked(per_node)}")]
    if site.gpu_request == "gpus-per-task":  # of whole nodes the job has all, and srun divides them
        return [] if whole_nodes else [("gpus-per-task", site.gpus_asked(per_task))]
    return [("gpus-per-node", site.gpus_asked(per_node))]


def _export(spec: JobSpec) -> str:
    """NIL, unlike NONE, does not make Slurm guess the user's login environment."""
    if spec.inherit == "all":
        return "ALL"
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return ",".join([*names, *spec.env_from]) or "NIL"


_ASK_FOR_DEVICES = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")
"""Options of sbatch that ask for GPUs; gres may ask for other things instead."""


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Raw requests for devices that contradict the job's own, of which there is one or none."""
    own = devices(site, request.devices, request.node_devices, request.whole_nodes)
    given = of_scheduler(spec.directives, NAME)
    for name in _ASK_FOR_DEVICES:
        value = given.get(name)
        count = _gpus(name, value) if isinstance(value, str) else None
        if count is None:
            continue
        field = f"directives.{name}"
        if not own:
            if count and spec.devices_per_rank == 0:
                yield field, f"asks for {count} GPUs, but devices_per_rank is 0: drop one of the two"
            continue
        ((asks, asked),) = own
        follows = f"{asks}={asked} follows from devices_per_rank and the ranks on a node"
        if name == asks and count != _gpus(asks, str(asked)):
            yield field, f"asks for {count}, but {follows}: change those"
        elif name != asks and count:
            fix = "drop it; a type of GPU is the site's gpu_type"
            yield field, f"asks for devices once more: {follows}; {fix}"


def _gpus(name: str, value: str) -> int | None:
    """How many GPUs a request names; None where it cannot be told."""
    total = 0
    for part in value.split(","):
        words = part.split(":")
        if name == "gres":
            if words[0] not in ("gpu", "gres/gpu"):
                continue
            words = words[1:]
        number = words[-1] if words and words[-1].isdecimal() else "1" if name == "gres" else ""
        if not number:
            return None
        total += int(number)
    return total
