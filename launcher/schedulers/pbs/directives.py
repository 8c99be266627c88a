"""qsub's directives: what a job asks for in them, and what a job file may say in them itself.

qsub(1B) and pbs_resources(7B) of OpenPBS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from launcher.config.job import JobSpec
from launcher.config.quantities import clock
from launcher.config.site import Site
from launcher.errors import shown
from launcher.launchers.base import Request
from launcher.quoting import PLAIN_DIRECTIVE, one_line
from launcher.schedulers.directives import Dialect, Directives, Layer, array_words, layered

_EVENTS = {"begin": "b", "end": "e", "fail": "a"}

_VALUE_ENDS = re.compile(r"[,\s'\"]")


def directive(name: str, value: str | bool) -> str:
    """An option as qsub reads it after `#PBS`: one letter is an option, a word a resource of -l.

    qsub splits the line itself (make_argv() in src/cmds/qsub.c): nothing is special inside quotes
    but the closing one. Then it splits what -l holds at commas (pbs_quote_parse()).
    """
    resource = len(name) > 1
    word = f"-l {name}" if resource else f"-{name}"
    if value is True:
        return word
    text = one_line(name, str(value))
    if resource:
        return f"{word}={_word(_value(name, text))}"
    return f"{word} {_word(text)}"


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
        "select": "nodes, ranks_per_node, cores_per_rank, devices_per_rank and memory",
        "walltime": "walltime",
        "J": "array",
        "V": "inherit",
        "v": "inherit",
        "W": "after",
        "r": "requeue.max",
        # Resources of a chunk: qsub refuses them as resources of the job beside a select.
        "nodes": "nodes",
        "ncpus": "cores_per_rank",
        "mpiprocs": "ranks_per_node",
        "ngpus": "devices_per_rank",
        "mem": "memory",
    },
    typed={"A": "account", "q": "queue"},
    needed={
        "j": "castoff keeps one log for both streams",
        "r": "PBS would rerun a failed job without counting it for castoff",
    },
    line=directive,
    refused={"l": "holds resources; write each under its name, as in `directives: {place: scatter}`"},
    has_letters=True,
)
"""What `directives:` may hold for qsub."""


HANDLES = frozenset(
    {
        *("name", "nodes", "cores_per_rank", "devices_per_rank", "binding", "memory", "walltime"),
        *("grace", "account", "queue", "exclusive", "mail.to", "mail.on", "options", "env_from"),
        *("inherit", "directives", "launcher.name", "launcher.args", "array.count", "array.max_concurrent"),
        *("after", "requeue.max", "requeue.how"),
    }
)
"""Fields of a job that are said to it: most in its directives, the others by the commands that submit."""


def directives(spec: JobSpec, site: Site, request: Request) -> Directives:
    """A job's directives for qsub: one letter is an option, a word is a resource of -l."""
    array = spec.array is not None and spec.array.count > 1  # PBS refuses -J 0-0
    asked: Layer = [
        ("N", request.name),
        ("A", spec.account),
        ("q", spec.queue),
        ("select", _select(spec, site, request)),
        ("place", "scatter:excl" if spec.exclusive else None),
        ("walltime", clock(request.walltime) if request.walltime else None),
        ("filesystems", None),
        ("J", array_words(spec) if array else None),
        ("W", f"depend={request.after}" if request.after else None),
        ("M", spec.mail.to if spec.mail else None),
        ("m", "".join(_EVENTS[event] for event in spec.mail.on) if spec.mail else None),
        *_environment(spec),
    ]
    # PBS runs a job again after a node failure by default, and insists on it for arrays.
    own: Layer = [("j", "oe"), ("r", "y" if array or spec.requeue.max else "n")]
    return layered(asked, own, site, spec)


def _environment(spec: JobSpec) -> Directives:
    if spec.inherit == "all":
        return [("V", True)]
    if isinstance(spec.inherit, list) and spec.inherit:
        return [("v", ",".join(spec.inherit))]
    return []


def contradictions(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Memory that no chunk asks for; of whole nodes a job has all."""
    if spec.memory is not None and "mem" not in site.select and not request.whole_nodes:
        fix = "drop it, or add mem to `select` in a profile that extends this site"
        yield "memory", f"is {spec.memory}, but {site.name} asks PBS for no memory: {fix}"


def _select(spec: JobSpec, site: Site, request: Request) -> str:
    spelled = {
        "ncpus": str(request.layout.max_per_node * (request.cores or 1)),
        "mpiprocs": str(request.layout.max_per_node),
        "ngpus": str(request.node_devices) if request.node_devices else None,
        "mem": f"{spec.memory.lower()}b" if spec.memory else None,
    }
    chunk = [f"{name}={spelled[name]}" for name in site.select if spelled[name] is not None]
    return ":".join([str(request.layout.nodes), *chunk])
