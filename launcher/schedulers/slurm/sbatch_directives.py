"""sbatch's directives: those that castoff writes for a job, and those that a job file may set itself.

https://slurm.schedmd.com/sbatch.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock
from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.dialect import Dialect, Directives, after_of, array_of, array_words
from castoff.launcher.schedulers.slurm import NAME
from castoff.launcher.schedulers.table import (
    OF_ARRAYS,
    Job,
    NoField,
    Row,
    decided,
    flag,
    replaceable,
    walltime,
    whole_number,
)
from castoff.launcher.text.quoting import PLAIN_DIRECTIVE, one_line


def directive(name: str, value: str | bool) -> str:
    """Write a directive as sbatch reads it after `#SBATCH`.

    sbatch splits the line itself (get_argument() in src/sbatch/opt.c): a backslash keeps the next
    character, also inside quotes, and an unquoted # begins a comment.
    """
    if value is True:
        return f"--{name}"
    text = one_line(name, str(value))
    if not PLAIN_DIRECTIVE.fullmatch(text):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"--{name}={text}"


_HETEROGENEOUS = (
    "makes a heterogeneous job, and castoff's jobs have nodes of one kind: submit one job for each kind, "
    "each with its own nodes, and let the later ones wait, as in after: {after: [FIRST]}; on PBS "
    "select takes chunks of several kinds"
)
_OF_HETEROGENEOUS = ("hetjob", "het-group", "packjob", "pack-group")
"""Options of sbatch and srun for jobs of several components: slurm.schedmd.com/heterogeneous_jobs.html."""


def devices(site: Site, request: Request) -> Directives:
    """Return the directive that requests the job's devices, if any."""
    if not request.node_devices:
        return []
    per_node = request.gpus(request.node_devices)
    if site.gpu_request == "gres":
        return [("gres", f"gpu:{per_node}")]
    if site.gpu_request == "gpus-per-task" and not request.whole_nodes:
        return [("gpus-per-task", request.gpus(request.devices))]
    if site.gpu_request == "gpus-per-task" and request.device_type is None:
        return []  # whole nodes include all devices, and srun divides them
    return [("gpus-per-node", per_node)]


def _export(job: Job) -> str:
    """Write the value of --export; NIL, unlike NONE, does not make Slurm guess the user's login
    environment.
    """
    spec = job.spec
    if spec.inherit == "all":
        return "ALL"
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return ",".join([*names, *spec.env_from]) or "NIL"


_ASK_FOR_DEVICES = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")
"""Options of sbatch that request GPUs; gres may request other resources instead."""

_PER_NODE = ("gres", "gpus-per-node")
"""Options that request GPUs for each node."""


def _asks_itself(spec: JobSpec) -> bool:
    """Whether the job's own directives request GPUs for each node, so that castoff does not request any."""
    raw = of_scheduler(spec.directives, NAME)
    return any(_number(_gpus(name, str(raw[name]))) for name in _PER_NODE if raw.get(name))


def _number(gpus: list[tuple[str, int]]) -> int:
    return sum(number for _, number in gpus)


def _gpus(name: str, value: str) -> list[tuple[str, int]]:
    """Read the types and numbers of GPUs in a request; an empty type means any."""
    requests = []
    for part in (part.removeprefix("gres/").split(":") for part in value.split(",")):
        if name == "gres" and part.pop(0) != "gpu":
            continue
        number = part.pop() if part and part[-1].isdecimal() else "1"
        requests.append((part[0] if part else "", int(number)))
    return requests


def _device_rows() -> list[Row]:
    """Return a row for each way to request devices; a job uses one of them."""

    def asked(name: str, job: Job) -> str | bool | None:
        return None if _asks_itself(job.spec) else dict(devices(job.site, job.request)).get(name)

    fields = ("devices_per_rank", "device_type")
    ways = ("gres", "gpus-per-task", "gpus-per-node")
    return [replaceable(name, fields[0], whole=partial(asked, name), covers=fields) for name in ways]


def _nodes(job: Job) -> str:
    return str(job.request.layout.nodes + job.request.spare_nodes)


def _cpus(job: Job) -> str | None:
    cores = None if job.request.by_list else job.request.cores
    return str(job.site.cpus_of(cores)) if cores else None


def _signal(job: Job) -> str | None:
    return f"B:USR2@{job.request.grace}" if job.request.walltime and job.spec.script is None else None


def _is_requeued(job: Job) -> bool:
    return "preempted" in job.spec.requeue.causes(by_scheduler=True)


def minutes(text: str) -> int | None:
    """Read a time limit, such as minutes, minutes:seconds or days-hours, in seconds; None: the text is not a
    time limit.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        return None
    days, first, second, third = match.groups()
    if days is not None:
        hours, mins, secs = int(first), int(second or 0), int(third or 0)
    elif third is not None:
        hours, mins, secs = int(first), int(second), int(third)
    else:
        hours, mins, secs = 0, int(first), int(second or 0)
    total = ((int(days or 0) * 24 + hours) * 60 + mins) * 60 + secs
    return total or None


def _walltime(text: str) -> str:
    total = minutes(text)
    if total is None:
        raise ValueError("is not a duration")
    return clock(total)


def _memory(text: str) -> str:
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.IGNORECASE)
    if match is None:
        raise ValueError("is not a whole number of K, M, G or T")
    number, unit = int(match[1]), match[2].upper() or "M"
    if number == 0:
        raise NoField  # 0 requests all memory of a node
    if unit == "M" and number % 1024 == 0:
        number, unit = number // 1024, "G"
    return f"{number}{unit}"


FIELDS = (
    decided("job-name", "name", lambda job: job.request.name, value=str),
    Row("account", "account"),
    Row("partition", "queue"),
    Row("qos", "qos"),
    Row("constraint", "constraint"),
    Row("reservation", "reservation"),
    Row("exclude", "exclude"),
    Row("nice", "nice", value=whole_number, bounds=(-2_147_483_645, 2_147_483_645), bare="100"),
    Row("exclusive", "exclusive", value=flag),
    decided("nodes", "nodes", _nodes, covers=("nodes", "restart.spare_nodes")),
    replaceable("no-kill", whole=lambda job: True if job.request.outlives_hosts else None),
    decided("ntasks-per-node", "ranks_per_node", lambda job: str(job.request.layout.max_per_node)),
    decided("ntasks", "ranks"),
    decided("cpus-per-task", "cores_per_rank", _cpus),
    *_device_rows(),
    Row("mem", "memory", value=_memory),
    decided("time", "walltime", walltime, value=_walltime),
    decided("array", "array", array_words, value=array_of, covers=OF_ARRAYS),
    decided("dependency", "after", lambda job: job.request.after, value=after_of),
    replaceable("mail-user", "mail.to", value=str),
    replaceable("mail-type", "mail.on", text=lambda on: ",".join(on).upper()),
    replaceable("output", whole=lambda job: f"%x-{'%A_%a' if job.spec.array else '%j'}.out", is_default=True),
    replaceable("open-mode", whole=lambda _: "append", is_default=True),
    decided("signal", "signal", _signal, covers=(), is_default=True),
    decided("requeue", "requeue.max", lambda job: _is_requeued(job) or None, is_default=True),
    decided("no-requeue", "requeue.max", lambda job: not _is_requeued(job) or None, is_default=True),
    decided("export", "inherit", _export, is_default=True),
)
"""The directives for a job's fields, in the order in which a person would write them."""

DIALECT = Dialect(
    fields=FIELDS,
    needed={
        "output": "logs are found through it",
        "open-mode": "a requeued job would overwrite its first log",
        "signal": "the job could not stop before its walltime",
        "requeue": "requeue.max asks for it",
        "no-requeue": "Slurm would requeue a failed node's job without counting it for castoff",
    },
    line=directive,
    refused={
        "clusters": "sends it where castoff could not ask about it; submit on that cluster's login node",
        **dict.fromkeys(_OF_HETEROGENEOUS, _HETEROGENEOUS),
    },
    sizes=frozenset(
        {
            *("nodes", "ntasks", "ntasks-per-node", "ntasks-per-socket", "ntasks-per-core", "ntasks-per-gpu"),
            *("cpus-per-task", "cpus-per-gpu", "mem", "mem-per-cpu", "mem-per-gpu", "gres", "gpus"),
            *("gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task", "exclusive", "hint"),
            *("threads-per-core", "sockets-per-node", "cores-per-socket", "distribution", "overcommit"),
            *("oversubscribe", "core-spec", "thread-spec", "extra-node-info", "use-min-nodes", "contiguous"),
            *("nodelist", "nodefile"),
        }
    ),
    streams=frozenset({"output", "error", "input", "open-mode"}),
    own_to_scripts=frozenset({"signal", "export"}),
)
"""The directives that `directives:` may contain for sbatch."""


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Yield raw directives about memory or devices that contradict the job's fields, and directives for
    heterogeneous jobs.
    """
    for number, word in enumerate(spec.launcher.args):
        if word == ":" or word.partition("=")[0].removeprefix("--") in _OF_HETEROGENEOUS:
            yield f"launcher.args.{number}", f"is {shown(word)}, which {_HETEROGENEOUS}"
    of_fields = dict(devices(site, request))
    for name, value in of_scheduler(spec.directives, NAME).items():
        field, gpus = f"directives.{name}", _gpus(name, str(value))
        types = {kind for kind, _ in gpus if kind != request.device_type}
        if name in ("mem-per-cpu", "mem-per-gpu") and value and spec.memory:
            yield (
                field,
                f"excludes memory ({spec.memory}) in Slurm: keep one of the two",
            )
        elif name not in _ASK_FOR_DEVICES or not isinstance(value, str):
            continue
        elif not of_fields and gpus and spec.devices_per_rank == 0:
            yield field, f"asks for GPUs ({value}), but devices_per_rank is 0: drop one of the two"
        elif of_fields and name in of_fields and not gpus:
            castoffs = of_fields[name]
            yield field, f"is {value}, in place of castoff's {name}={castoffs}: write {castoffs},{value}"
        elif of_fields and gpus and not _is_met(name, gpus, of_fields, request):
            ((asks, request_text),) = of_fields.items()
            follows = f"{asks}={request_text} follows from devices_per_rank and the ranks on a node"
            yield field, f"is {value}, but {follows}: drop it; a type of GPU is device_type"
        elif of_fields and gpus and request.device_type and types:
            yield field, f"is {value}, but device_type is {request.device_type}: drop one of the two"


def _is_met(
    name: str, gpus: list[tuple[str, int]], of_fields: Mapping[str, object], request: Request
) -> bool:
    """Whether a directive requests as many devices as the job's fields do, on each of its nodes."""
    if name in _PER_NODE:
        return _number(gpus) == request.node_devices
    return name in of_fields and _number(gpus) == _number(_gpus(name, str(of_fields[name])))
