"""qsub's directives: what a job asks for in them, and what a job file may say in them itself.

qsub(1B) and pbs_resources(7B) of OpenPBS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock
from castoff.launcher.config.site import Site
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.directives import Dialect, Directives, Layer, layered
from castoff.launcher.schedulers.pbs import NAME, attributes, requested
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


DIALECT = Dialect(
    owned={
        "N": "name",
        "select": "nodes, ranks_per_node, cores_per_rank, devices_per_rank, memory and, for the rest, select",
        "walltime": "walltime",
        "J": "array",
        "V": "inherit",
        "v": "inherit",
        "r": "requeue.max",
        # Resources of a chunk: qsub refuses them as resources of the job beside a select.
        "nodes": "nodes",
        "ncpus": "cores_per_rank",
        "mpiprocs": "ranks_per_node",
        "ngpus": "devices_per_rank",
        "mem": "memory",
        **dict.fromkeys(("host", "vnode", "arch", "ompthreads"), "select"),
    },
    typed={"A": "account", "q": "queue", "W": "after"},
    needed={
        "j": "castoff keeps one log for both streams",
        "r": "PBS would rerun a failed job without counting it for castoff",
    },
    beyond=lambda name, value: name == "W" and not attributes.waits_by_after(value),
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


HANDLES = frozenset(
    {
        *("name", "nodes", "cores_per_rank", "devices_per_rank", "device_type", "binding", "memory"),
        *("walltime", "grace", "account", "queue", "exclusive", "mail.to", "mail.on", "options", "env_from"),
        *("inherit", "directives", "launcher.name", "launcher.args", "array.count", "array.indices"),
        *("array.max_concurrent", "after", "requeue.max", "requeue.how", "select"),
        *("restart.spare_nodes", "preflight", "requeue.on"),
    }
)
"""Fields of a job that are said to it: most in its directives, the others by the commands that submit."""


def directives(spec: JobSpec, site: Site, request: Request) -> Directives:
    """A job's directives for qsub: one letter is an option, a word is a resource of -l."""
    # PBS makes no array of one that it is not talked into: that of member 0 is a plain job.
    array = spec.array is not None and (spec.array.size > 1 or spec.array.own_indices is not None)
    together = _attributes(spec, site, request)
    asked: Layer = [
        ("N", request.name),
        ("A", spec.account),
        ("q", spec.queue),
        *requested.of(spec, site, request),
        ("place", "scatter:excl" if spec.exclusive else None),
        ("walltime", clock(request.walltime) if request.walltime else None),
        ("filesystems", None),
        ("J", _array(spec) if array else None),
        ("W", together),
        ("M", spec.mail.to if spec.mail else None),
        ("m", "".join(_EVENTS[event] for event in spec.mail.on) if spec.mail else None),
        *_environment(spec),
    ]
    # PBS runs a job again after a node failure by default, and insists on it for arrays.
    own: Layer = [
        ("j", "oe"),
        ("r", "y" if array or "preempted" in spec.requeue.causes(by_scheduler=True) else "n"),
    ]
    # Each chunk gets a host of its own, unless it is a device; beside other forms qsub takes no place.
    of_nodes = site.request_form == "select" and request.device_queue is None
    own.append(("place", "scatter" if of_nodes else None))
    found = [one for one in layered(asked, own, site, spec, DIALECT) if one[0] != "W"]
    if together:  # neither the site's nor the job's alone, which would hide the others'
        before = {name for name, _ in asked[: asked.index(("W", together))]}
        found.insert(sum(name in before for name, _ in found), ("W", together))
    return found


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


def _array(spec: JobSpec) -> str | None:
    """An array's indices; None: no array."""
    if spec.array is None:
        return None
    span, most = one_range(tasks(spec.array.members)), spec.array.max_concurrent
    return f"{span}%{most}" if most else span


def _environment(spec: JobSpec) -> Directives:
    if spec.inherit == "all":
        return [("V", True)]
    if isinstance(spec.inherit, list) and spec.inherit:
        return [("v", ",".join(spec.inherit))]
    return []


def _attributes(spec: JobSpec, site: Site, request: Request) -> str | None:
    """What -W says: castoff's, the site's and the job's attributes; null drops the site's."""
    of_job = of_scheduler(spec.directives, NAME)
    of_site = of_scheduler(site.directives, NAME), of_scheduler(site.defaults.directives, NAME)
    given = [one.get("W") for one in (*of_site, of_job)] if of_job.get("W", True) else []
    tolerate = "tolerate_node_failures=all" if request.spare_nodes else None
    return attributes.merged(f"depend={request.after}" if request.after else None, tolerate, *given)


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """What a job asks for and this site's PBS is not asked for, or not so."""
    yield from requested.problems(spec, site, request)
    word = of_scheduler(spec.directives, NAME).get("W")
    for field in ("after", "requeue.max"):
        set_ = spec.after if field == "after" else spec.requeue.max
        if set_ and attributes.dependency(word) is not None:
            yield "directives.W", f"sets depend, and so does castoff for {field}: drop one of the two"
