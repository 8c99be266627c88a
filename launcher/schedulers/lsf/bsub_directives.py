"""bsub's directives: what a job asks for in them, and what a job file may say in them itself.

bsub(1) of IBM Spectrum LSF 10.1. A name is an option, or a section of -R: `span`, `rusage`, `affinity`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from castoff.launcher.config.array_indices import index_list
from castoff.launcher.config.quantities import clock, size
from castoff.launcher.errors import shown
from castoff.launcher.ranks.hostlist import expand
from castoff.launcher.schedulers.dialect import Dialect
from castoff.launcher.schedulers.machine_info import memory_words
from castoff.launcher.schedulers.table import OF_ARRAYS, Job, NoField, Row, decided, replaceable
from castoff.launcher.text.quoting import one_line

SECTIONS = ("select", "order", "rusage", "span", "same", "cu", "affinity")
"""Of a resource requirement; bsub merges those of several -R."""

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")

CONDITIONS = {"after": "started", "afterok": "done", "afternotok": "exit", "afterany": "ended"}
"""castoff's conditions in a dependency of bsub -w."""


def option(name: str, value: str | bool) -> list[str]:
    """A directive as words of bsub's command line."""
    if value is True:
        return [f"-{name}"]
    text = one_line(name, str(value))
    if name in SECTIONS:
        return ["-R", f"{name}[{text}]"]
    return [f"-{name}", dependency(text) if name == "w" else text]


def directive(name: str, value: str | bool) -> str:
    """The same as bsub reads it after `#BSUB`: nothing is special inside quotes but the closing one."""
    word, *texts = option(name, value)
    return " ".join([word, *(_quoted(name, text) for text in texts)])


def _quoted(name: str, text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    quote = "'" if '"' in text else '"'
    if quote in text or "\\" in text or text.startswith("#"):
        field = DIALECT.said_by_fields.get(name, f"directives.{name}")
        raise ValueError(
            f"{field}: is {shown(text)}, but bsub takes no backslash, no # in front, and not both ' and \""
        )
    return f"{quote}{text}{quote}"


def dependency(words: str) -> str:
    """`afterok:1:2,after:3` as LSF takes it."""
    parts = (one.split(":") for one in words.split(","))
    return " && ".join(f"{CONDITIONS[condition]}({job})" for condition, *jobs in parts for job in jobs)


def other_hosts(hosts: Sequence[str]) -> str:
    """A selection of all hosts but these."""
    return " && ".join(f"hname!='{host}'" for host in hosts)


def tasks(members: Sequence[int]) -> Sequence[int]:
    """The indices of members that are all of an array: LSF knows no index 0."""
    return members if members[0] > 0 else range(1, len(members) + 1)


def _name(job: Job) -> str:
    array, name = job.spec.array, job.request.name
    if array is None:
        return name
    most = f"%{array.max_concurrent}" if array.max_concurrent else ""
    return f"{name}[{index_list(tasks(array.members))}]{most}"


def _slots(job: Job) -> int:
    """Of each node: one for each core, as LSF counts them unless a site says otherwise."""
    return job.request.layout.max_per_node * (job.request.cores or 1)


def _selected(job: Job) -> str | None:
    constraint, exclude = job.spec.constraint, job.spec.exclude
    others = other_hosts(expand(exclude)) if exclude else None
    return f"({constraint}) && {others}" if constraint and others else constraint or others


def _gpus(job: Job) -> str | None:
    request = job.request
    if not request.node_devices:
        return None
    return f"num={request.node_devices}:j_exclusive=yes" + (
        f":gmodel={request.device_type}" if request.device_type else ""
    )


def _memory(text: str) -> str:
    found = re.fullmatch(r"mem=(\d{1,9})([MGT])B?", text)
    if found is None:
        raise NoField
    return memory_words(int(found[1]) * {"M": 1, "G": 1024, "T": 1024**2}[found[2]])


def _limit(job: Job) -> str | None:
    return str(-(-job.request.walltime // 60)) if job.request.walltime else None


def _walltime(text: str) -> str:
    found = re.fullmatch(r"(?:(\d{1,6}):)?(\d{1,6})(?:/\S+)?", text)
    if found is None or not int(found[1] or 0) + int(found[2]):
        raise ValueError("is not a duration")
    return clock(int(found[1] or 0) * 3600 + int(found[2]) * 60)


def _environment(job: Job) -> str:
    spec = job.spec
    if spec.inherit == "all":
        return "all"
    return ",".join([*(spec.inherit if isinstance(spec.inherit, list) else ()), *spec.env_from]) or "none"


def _reruns(job: Job) -> bool:
    return "preempted" in job.spec.requeue.causes(by_scheduler=True)


_SLOTS = "nodes, ranks_per_node, cores_per_rank"

FIELDS = (
    decided("J", "name", _name, covers=("name", *OF_ARRAYS)),
    Row("P", "account"),
    Row("q", "queue"),
    Row("U", "reservation"),
    decided("n", "nodes", lambda job: str(job.request.layout.nodes * _slots(job)), follows=_SLOTS),
    decided(
        "span",
        "ranks_per_node",
        lambda job: f"ptile={_slots(job)}",
        covers=_SLOTS.split(", "),
        follows=_SLOTS,
    ),
    decided("select", "constraint", _selected, covers=("constraint", "exclude")),
    Row("rusage", "memory", text=lambda memory: f"mem={-(-size(memory) >> 20)}MB", value=_memory),
    Row("x", "exclusive"),
    decided("gpu", "devices_per_rank", _gpus, covers=("devices_per_rank", "device_type")),
    decided("W", "walltime", _limit, value=_walltime),
    decided("w", "after", lambda job: job.request.after),
    replaceable("u", "mail.to", value=str),
    replaceable("B", "mail.on", text=lambda on: "begin" in on),
    replaceable("N", "mail.on", text=lambda on: "end" in on),
    replaceable("Ne", "mail.on", text=lambda on: "fail" in on and "end" not in on),
    decided("env", "inherit", _environment),
    # LSF's warning reaches every process of the job, and would end those that do not handle it.
    decided("wa", "signal"),
    decided("wt", "signal"),
    decided("r", "requeue.max", lambda job: _reruns(job) or None, is_default=True),
    decided("rn", "requeue.max", lambda job: not _reruns(job) or None, is_default=True),
    replaceable("o", whole=lambda job: "%J-%I.out" if job.spec.array else "%J.out", is_default=True),
)
"""The bsub directives and the job field that each of them sets, in the order in which a person would write
them.
"""

_ASKS = "is for the command that submits"
_HOLDS: Mapping[str, str] = {
    "R": "holds sections; write each under its name, as in `directives: {same: model}`",
    **dict.fromkeys(("I", "Ip", "Is", "K"), f"{_ASKS}; castoff alloc gives a shell"),
}

DIALECT = Dialect(
    fields=FIELDS,
    needed={"o": "castoff keeps one log for both streams"},
    line=directive,
    refused=_HOLDS,
    has_letters=True,
    sizes=frozenset({"n", "span", "gpu", "x", "rusage", "affinity", "nnodes", "hostfile"}),
    streams=frozenset({"o", "oo", "e", "eo"}),
)
"""What `directives:` may hold for bsub."""
