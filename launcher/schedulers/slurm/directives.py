"""sbatch's directives: what a job asks for in them, and what a job file may say in them itself.

https://slurm.schedmd.com/sbatch.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock
from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.directives import Dialect, Directives, Layer, array_words, layered
from castoff.launcher.schedulers.slurm import NAME
from castoff.launcher.text.quoting import PLAIN_DIRECTIVE, one_line


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


_HETEROGENEOUS = (
    "makes a heterogeneous job, and castoff's jobs have nodes of one kind: submit one job for each kind, "
    "each with its own nodes, and let the later ones wait, as in after: {after: [FIRST]}; on PBS "
    "select takes chunks of several kinds"
)
_OF_HETEROGENEOUS = ("hetjob", "het-group", "packjob", "pack-group")
"""sbatch's and srun's words about jobs of several components: slurm.schedmd.com/heterogeneous_jobs.html."""

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
        "signal": "signal",
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
    beyond=lambda name, value: (
        (name == "mem" and value == "0") or (name == "exclusive" and value is not True)
    ),
)
"""What `directives:` may hold for sbatch."""


HANDLES = frozenset(
    {
        *("name", "nodes", "cores_per_rank", "devices_per_rank", "device_type", "binding", "memory"),
        *(
            "walltime",
            "grace",
            "account",
            "queue",
            "qos",
            "constraint",
            "reservation",
            "exclude",
            "exclusive",
        ),
        *("mail.to", "mail.on", "options", "env_from", "inherit", "directives", "launcher.name"),
        *("launcher.args", "array.count", "array.indices", "array.max_concurrent", "after", "requeue.max"),
        *("restart.spare_nodes", "preflight", "requeue.on"),
    }
)
"""Fields of a job that are said to it: most in its directives, the others by the commands that submit."""


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
        ("nodes", str(request.layout.nodes + request.spare_nodes)),
        ("no-kill", True if request.spare_nodes else None),
        ("ntasks-per-node", str(request.layout.max_per_node)),
        (
            "cpus-per-task",
            str(site.cpus_of(request.cores)) if request.cores and not request.by_list else None,
        ),
        *([] if _asks_itself(spec, request) else devices(site, request)),
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
        ("signal", f"B:USR2@{request.grace}" if request.walltime and spec.script is None else None),
        ("requeue" if "preempted" in spec.requeue.causes(by_scheduler=True) else "no-requeue", True),
        ("export", _export(spec)),
    ]
    return layered(asked, own, site, spec, DIALECT)


def devices(site: Site, request: Request) -> Directives:
    """How Slurm is asked for the job's devices: one directive, or none."""
    if not request.node_devices:
        return []
    per_node = request.gpus(request.node_devices)
    if site.gpu_request == "gres":
        return [("gres", f"gpu:{per_node}")]
    if site.gpu_request == "gpus-per-task" and not request.whole_nodes:
        return [("gpus-per-task", request.gpus(request.devices))]
    if site.gpu_request == "gpus-per-task" and request.device_type is None:
        return []  # of whole nodes the job has all, and srun divides them
    return [("gpus-per-node", per_node)]


def _export(spec: JobSpec) -> str:
    """NIL, unlike NONE, does not make Slurm guess the user's login environment."""
    if spec.inherit == "all":
        return "ALL"
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return ",".join([*names, *spec.env_from]) or "NIL"


_ASK_FOR_DEVICES = ("gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task")
"""Options of sbatch that ask for GPUs; gres may ask for other things instead."""

_PER_NODE = ("gres", "gpus-per-node")
"""Those that ask for GPUs of each node."""


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Raw requests for memory or devices that contradict the job's own, and those of heterogeneous jobs."""
    for number, word in enumerate(spec.launcher.args):
        if word == ":" or word.partition("=")[0].removeprefix("--") in _OF_HETEROGENEOUS:
            yield f"launcher.args.{number}", f"is {shown(word)}, which {_HETEROGENEOUS}"
    own = dict(devices(site, request))
    for name, value in of_scheduler(spec.directives, NAME).items():
        field, gpus = f"directives.{name}", _gpus(name, str(value))
        types = {kind for kind, _ in gpus if kind != request.device_type}
        if name in ("mem-per-cpu", "mem-per-gpu") and value and spec.memory:
            yield field, f"excludes memory, which is {spec.memory}, in Slurm's eyes: keep one of the two"
        elif name not in _ASK_FOR_DEVICES or not isinstance(value, str):
            continue
        elif not own and gpus and spec.devices_per_rank == 0:
            yield field, f"asks for GPUs ({value}), but devices_per_rank is 0: drop one of the two"
        elif own and name in own and not gpus:
            yield field, f"is {value}, in place of castoff's {name}={own[name]}: write {own[name]},{value}"
        elif own and gpus and not _is_met(name, gpus, own, request):
            ((asks, asked),) = own.items()
            follows = f"{asks}={asked} follows from devices_per_rank and the ranks on a node"
            yield field, f"is {value}, but {follows}: drop it; a type of GPU is device_type"
        elif own and gpus and request.device_type and types:
            yield field, f"is {value}, but device_type is {request.device_type}: drop one of the two"


def _asks_itself(spec: JobSpec, request: Request) -> bool:
    """Whether the job's own directives ask for its devices, in another way than castoff would."""
    given = of_scheduler(spec.directives, NAME)
    return any(_number(_gpus(name, str(given[name]))) for name in _PER_NODE if given.get(name))


def _is_met(name: str, gpus: list[tuple[str, int]], own: Mapping[str, object], request: Request) -> bool:
    """Whether a directive asks for as many devices as the job's fields do, on each of its nodes."""
    if name in _PER_NODE:
        return _number(gpus) == request.node_devices
    return name in own and _number(gpus) == _number(_gpus(name, str(own[name])))


def _number(gpus: list[tuple[str, int]]) -> int:
    return sum(number for _, number in gpus)


def _gpus(name: str, value: str) -> list[tuple[str, int]]:
    """The types and numbers of GPUs that a request names; a type of "": any."""
    found = []
    for part in (part.removeprefix("gres/").split(":") for part in value.split(",")):
        if name == "gres" and part.pop(0) != "gpu":
            continue
        number = part.pop() if part and part[-1].isdecimal() else "1"
        found.append((part[0] if part else "", int(number)))
    return found
