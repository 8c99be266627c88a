"""qsub's directives: what a job asks for in them, and what a job file may say in them itself.

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
    """An option as qsub reads it after `#PBS`: one letter is an option, a word a resource of -l.

    qsub splits the line itself (make_argv() in src/cmds/qsub.c): nothing is special inside quotes
    but the closing one. Then it splits what -l holds at commas (pbs_quote_parse()).
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
    """The same as words of a command line, which no shell and no make_argv() reads."""
    if len(name) > 1:
        return ["-l", name if value is True else f"{name}={_value(name, one_line(name, str(value)))}"]
    return [f"-{name}"] if value is True else [f"-{name}", one_line(name, str(value))]


def _value(name: str, text: str) -> str:
    """A resource's value, so that a comma or a space in it ends nothing."""
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
    # Runs without ' stand in '…', the apostrophes between them in "…".
    pieces = re.findall(r"[^']+|'+", text)
    return "".join(f"'{piece}'" if "'" not in piece else f'"{piece}"' for piece in pieces) or "''"


def tasks(members: Sequence[int]) -> Sequence[int]:
    """The indices of members that are all of an array: these, where one range with a step has them; else the
    places of the members among each other, for qsub takes one range alone.
    """
    steps = {after - before for before, after in pairwise(members)}
    return members if len(steps) < 2 else range(len(members))


def one_range(indices: Sequence[int]) -> str:
    """Indices that are equally far apart, as qsub takes them: it refuses 3-3, but 3-4:2 is 3 alone
    (chk_Jrange.c of OpenPBS 23).
    """
    first, last = indices[0], indices[-1]
    if len(indices) == 1:
        return f"{first}-{first + 1}:2"
    step = indices[1] - first
    return f"{first}-{last}" + (f":{step}" if step > 1 else "")


def _is_array(job: Job) -> bool:
    """PBS makes no array of one that it is not talked into: that of member 0 is a plain job."""
    array = job.spec.array
    return array is not None and (array.size > 1 or array.own_indices is not None)


def _array(job: Job) -> str | None:
    """An array's indices; None: no array."""
    array = job.spec.array
    if array is None or not _is_array(job):
        return None
    span, most = one_range(tasks(array.members)), array.max_concurrent
    return f"{span}%{most}" if most else span


def _inherited(job: Job) -> str | None:
    return ",".join(job.spec.inherit) or None if isinstance(job.spec.inherit, list) else None


def _attributes(job: Job) -> str | None:
    """What -W says: castoff's, the site's and the job's attributes; null drops the site's."""
    spec, site, request = job
    of_job = of_scheduler(spec.directives, NAME)
    of_site = of_scheduler(site.directives, NAME), of_scheduler(site.defaults.directives, NAME)
    given = [one.get("W") for one in (*of_site, of_job)] if of_job.get("W", True) else []
    tolerate = "tolerate_node_failures=all" if request.spare_nodes else None
    return attributes.merged(f"depend={request.after}" if request.after else None, tolerate, *given)


def _placed(job: Job) -> str | None:
    """Each chunk gets a host of its own, unless it is a device; beside other forms qsub takes no place."""
    of_nodes = job.site.request_form == "select" and job.request.device_queue is None
    return "scatter" if of_nodes else None


def _rerun(job: Job) -> str:
    """PBS runs a job again after a node failure by default, and insists on it for arrays."""
    again = _is_array(job) or "preempted" in job.spec.requeue.causes(by_scheduler=True)
    return "y" if again else "n"


def seconds(text: str) -> int | None:
    """Seconds of `walltime`: a number, or with minutes, hours and days before it; None: it is none."""
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
    """The field `after` of -W."""
    if not attributes.waits_by_after(text):
        raise NoField
    return after_of(attributes.dependency(text) or "")


def _requested(name: str) -> Callable[[Job], Text]:
    """What is requested of nodes by one resource, in the form that the site takes."""
    return lambda job: dict(requested.of(*job)).get(name)


_IN_CHUNKS = "nodes, ranks_per_node, cores_per_rank, devices_per_rank, memory and, for the rest, select"

FIELDS = (
    decided("N", "name", lambda job: job.request.name, value=str),
    Row("A", "account"),
    Row("q", "queue"),
    Row("p", "nice", text=lambda nice: str(-nice), value=lambda p: -whole_number(p), bounds=(-1023, 1024)),
    decided("select", "select", _requested("select"), covers=("select", "device_type"), follows=_IN_CHUNKS),
    # Resources of a chunk: qsub refuses them as resources of the job beside a select.
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
"""Which directive says a field, in the order in which a person would write them."""

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
"""What `directives:` may hold for qsub."""


def directives(spec: JobSpec, site: Site, request: Request) -> Directives:
    """A job's directives for qsub: one letter is an option, a word is a resource of -l."""
    job = Job(spec, site, request)
    together = _attributes(job)
    found = [one for one in layered(DIALECT, job) if one[0] != "W"]
    if together:  # neither the site's nor the job's alone, which would hide the others'
        rows = [row.directive for row in FIELDS]
        before = {*rows[: rows.index("W")]}
        found.insert(sum(name in before for name, _ in found), ("W", together))
    return found


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """What a job asks for and this site's PBS is not asked for, or not so."""
    yield from requested.problems(spec, site, request)
    word = of_scheduler(spec.directives, NAME).get("W")
    for field in ("after", "requeue.max"):
        set_ = spec.after if field == "after" else spec.requeue.max
        if set_ and attributes.dependency(word) is not None:
            yield "directives.W", f"sets depend, and so does castoff for {field}: drop one of the two"
