"""qsub's directives: those that castoff writes for a job, and those that a job file may set itself.

qsub(1B) and pbs_resources(7B) of OpenPBS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock
from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.dialect import Dialect, Directives, after_of, array_of, layered
from castoff.launcher.schedulers.pbs import NAME, attributes, requested
from castoff.launcher.schedulers.table import (
    OF_ARRAYS,
    Job,
    NoField,
    Row,
    Text,
    decided,
    never,
    replaceable,
    walltime,
    whole_number,
)
from castoff.launcher.text.quoting import PLAIN_DIRECTIVE, one_line

_EVENTS = {"begin": "b", "end": "e", "fail": "a"}

_VALUE_ENDS = re.compile(r"[,\s'\"]")


def directive(name: str, value: str | bool) -> str:
    """Write a directive as qsub reads it after `#PBS`: a letter is an option, a word is a resource of -l.

    qsub splits the line itself (make_argv() in src/cmds/qsub.c): inside quotes, only the closing quote is
    special. Then it splits the text of -l at commas (pbs_quote_parse()).
    """
    resource = len(name) > 1
    word = f"-l {name}" if resource else f"-{name}"
    if name == "W":
        attributes.check(str(value))
    if value is True:
        return word
    text = one_line(name, str(value))
    if name.lower() in attributes.NAMES:
        raise ValueError(f"directives.{name}: is an attribute, not a resource; write W: {name}={text}")
    if resource:
        return f"{word}={_word(_value(name, text))}"
    return f"{word} {_word(text)}"


def option(name: str, value: str | bool) -> list[str]:
    """Write a directive as words of a command line, which no shell and no make_argv() splits further."""
    if len(name) > 1:
        return ["-l", name if value is True else f"{name}={_value(name, one_line(name, str(value)))}"]
    return [f"-{name}"] if value is True else [f"-{name}", one_line(name, str(value))]


def _value(name: str, text: str) -> str:
    """Quote a resource's value, so that a comma or a space does not end it."""
    if "&" in text or not (text.isascii() and text.isprintable()):
        raise ValueError(f"directives.{name}: is {shown(text)}, but PBS takes plain ASCII without & there")
    if not _VALUE_ENDS.search(text):
        return text
    if "'" in text and '"' in text:
        raise ValueError(f"directives.{name}: is {shown(text)}, but PBS cannot hold both ' and \" there")
    quote = '"' if "'" in text else "'"
    return f"{quote}{text}{quote}"


def _word(text: str) -> str:
    if PLAIN_DIRECTIVE.fullmatch(text):
        return text
    # Text without apostrophes is put in '…', and apostrophes in "…".
    pieces = re.findall(r"[^']+|'+", text)
    return "".join(f"'{piece}'" if "'" not in piece else f'"{piece}"' for piece in pieces) or "''"


def tasks(members: Sequence[int]) -> Sequence[int]:
    """Return PBS's indices of all members of an array: the members' numbers if these form one range with a
    step; otherwise their positions, since qsub takes only one range.
    """
    steps = {after - before for before, after in pairwise(members)}
    return members if len(steps) < 2 else range(len(members))


def one_range(indices: Sequence[int]) -> str:
    """Write equidistant indices for qsub, which refuses 3-3, but takes 3-4:2 for index 3 alone (chk_Jrange.c
    of OpenPBS 23).
    """
    first, last = indices[0], indices[-1]
    if len(indices) == 1:
        return f"{first}-{first + 1}:2"
    step = indices[1] - first
    return f"{first}-{last}" + (f":{step}" if step > 1 else "")


def _is_array(job: Job) -> bool:
    """Whether PBS gets an array: PBS has no arrays of one member, and member 0 alone becomes a plain job."""
    array = job.spec.array
    return array is not None and (array.size > 1 or array.own_indices is not None)


def _array(job: Job) -> str | None:
    """Write an array's indices; None: no array."""
    array = job.spec.array
    if array is None or not _is_array(job):
        return None
    span, most = one_range(tasks(array.members)), array.max_concurrent
    return f"{span}%{most}" if most else span


def _inherited(job: Job) -> str | None:
    return ",".join(job.spec.inherit) or None if isinstance(job.spec.inherit, list) else None


def _attributes(job: Job) -> str | None:
    """Merge -W from castoff's, the site's and the job's attributes; null in the job drops the site's
    attributes.
    """
    spec, site, request = job
    of_job = of_scheduler(spec.directives, NAME)
    of_site = of_scheduler(site.directives, NAME), of_scheduler(site.defaults.directives, NAME)
    texts = [layer.get("W") for layer in (*of_site, of_job)] if of_job.get("W", True) else []
    tolerate = "tolerate_node_failures=all" if request.outlives_hosts else None
    return attributes.merged(f"depend={request.after}" if request.after else None, tolerate, *texts)


def _placed(job: Job) -> str | None:
    """Request that each chunk gets a separate host, unless chunks are devices; without select, qsub takes no
    `place`.
    """
    of_nodes = job.site.request_form == "select" and job.request.device_queue is None
    return "scatter" if of_nodes else None


def _rerun(job: Job) -> str:
    """Whether PBS may rerun the job after a node failure: by default PBS does, and arrays must allow that."""
    reruns = _is_array(job) or "preempted" in job.spec.requeue.causes(by_scheduler=True)
    return "y" if reruns else "n"


def seconds(text: str) -> int | None:
    """Read a `walltime`, which is seconds, with minutes, hours and days before them if needed; None: the text
    is not a duration.
    """
    parts = text.split(".")[0].split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 4:
        return None
    total = 0
    for factor, part in zip((1, 60, 3600, 86400), reversed(parts), strict=False):
        total += factor * int(part)
    return total or None


def _walltime(text: str) -> str:
    total = seconds(text)
    if total is None:
        raise ValueError("is not a duration")
    return clock(total)


def _after(text: str) -> dict[str, list[str]]:
    """Read the field `after` from -W."""
    if not attributes.waits_by_after(text):
        raise NoField
    return after_of(attributes.dependency(text) or "")


def _requested(name: str) -> Callable[[Job], Text]:
    """Return the function that writes one resource of nodes, in the form that the site uses."""
    return lambda job: dict(requested.of(*job)).get(name)


_IN_CHUNKS = "nodes, ranks_per_node, cores_per_rank, devices_per_rank, memory and, for the rest, select"

FIELDS = (
    decided("N", "name", lambda job: job.request.name, value=str),
    Row("A", "account"),
    Row("q", "queue"),
    Row("p", "nice", text=lambda nice: str(-nice), value=lambda p: -whole_number(p), bounds=(-1023, 1024)),
    decided("select", "select", _requested("select"), covers=("select", "device_type"), follows=_IN_CHUNKS),
    # Resources of a chunk; if there is a select, qsub refuses them as resources of the job.
    decided("nodes", "nodes", _requested("nodes")),
    decided("ncpus", "cores_per_rank", _requested("ncpus")),
    decided("ngpus", "devices_per_rank", _requested("ngpus")),
    decided("mem", "memory", _requested("mem")),
    decided("mpiprocs", "ranks_per_node"),
    *(decided(name, "select") for name in ("host", "vnode", "arch", "ompthreads")),
    replaceable("place", "exclusive", text=lambda alone: "scatter:excl" if alone else None),
    decided("walltime", "walltime", walltime, value=_walltime),
    replaceable("filesystems", whole=never),
    decided("J", "array", _array, value=array_of, covers=OF_ARRAYS),
    Row("W", "after", whole=_attributes, value=_after, covers=("after", "restart.spare_nodes"), bare=""),
    replaceable("M", "mail.to", value=str),
    replaceable("m", "mail.on", text=lambda on: "".join(_EVENTS[one] for one in on)),
    decided("V", "inherit", lambda job: job.spec.inherit == "all" or None),
    decided("v", "inherit", _inherited),
    replaceable("j", whole=lambda _: "oe", is_default=True),
    decided("r", "requeue.max", _rerun, is_default=True),
    replaceable("place", whole=_placed, is_default=True),
)
"""The directives for a job's fields, in the order in which a person would write them."""

DIALECT = Dialect(
    fields=FIELDS,
    needed={
        "j": "castoff keeps one log for both streams",
        "r": "PBS would rerun a failed job without counting it for castoff",
    },
    line=directive,
    refused={"l": "holds resources; write each under its name, as in `directives: {place: scatter}`"},
    has_letters=True,
    sizes=frozenset(
        {
            *("select", "place", "nodes", "ncpus", "mpiprocs", "ngpus", "gpus", "mem", "pmem", "vmem"),
            *("pvmem", "procs", "ompthreads"),
        }
    ),
    streams=frozenset({"o", "e", "j", "k"}),
)
"""The directives that `directives:` may contain for qsub."""


def directives(spec: JobSpec, site: Site, request: Request) -> Directives:
    """Return a job's directives for qsub: a letter is an option, a word is a resource of -l."""
    job = Job(spec, site, request)
    together = _attributes(job)
    merged = [entry for entry in layered(DIALECT, job) if entry[0] != "W"]
    if together:  # instead of the last layer's -W, which would hide those of other layers
        rows = [row.directive for row in FIELDS]
        before = {*rows[: rows.index("W")]}
        merged.insert(sum(name in before for name, _ in merged), ("W", together))
    return merged


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Yield a job's requests that this site's PBS cannot be asked for, as fields and messages."""
    yield from requested.problems(spec, site, request)
    word = of_scheduler(spec.directives, NAME).get("W")
    for field in ("after", "requeue.max"):
        set_ = spec.after if field == "after" else spec.requeue.max
        if set_ and attributes.dependency(word) is not None:
            yield "directives.W", f"sets depend, and so does castoff for {field}: drop one of the two"
