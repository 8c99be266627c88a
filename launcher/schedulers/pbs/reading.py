"""qsub's directives in scripts that castoff has not written, as qsub(1B) of PBS and of Torque read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from launcher.config.quantities import clock
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.line import LOGS
from launcher.schedulers.pbs import NAME
from launcher.schedulers.pbs.attributes import attributes_text, parse_attributes
from launcher.schedulers.pbs.directives import DIALECT
from launcher.schedulers.pbs.select import Chunk, parse_select
from launcher.schedulers.reading import ScriptReader, raw

_LETTERS_WITH_VALUES = "aAcCdDeIJhklmMNoOpPqrSStuvWwR"
_FLAGS = "fhIVXzxn"
_EVENTS = {"b": "begin", "e": "end", "a": "fail"}


def read(rest: str, asked: Asked) -> None:
    """What stands behind `#PBS`."""
    words = _arguments(rest)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        letter = word[1:2]
        if not word.startswith("-") or not letter:
            asked.refuse(f"{word!r} is no option of qsub")
            return
        if (letter in _FLAGS and letter not in "hI") or (letter in "hI" and len(word) == 2):
            _flag(letter, asked)
            continue
        value = word[2:]
        if not value:
            value = words[at] if at < len(words) else ""
            at += 1
        _letter(letter, value, asked)


def _arguments(rest: str) -> list[str]:
    """Words; a comment behind them begins at a # after a space."""
    try:
        plain = shlex.shlex(rest, posix=True, punctuation_chars="")
        plain.whitespace_split, plain.commenters, plain.escape = True, "", ""
        words = list(plain)
    except ValueError:
        words = rest.split()
    comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _flag(letter: str, asked: Asked) -> None:
    if letter == "V":
        asked.fields["inherit"] = "all"
    elif letter in "IX":
        asked.refuse(f"-{letter} is for a job that somebody types into; castoff launch starts ranks in one")
    elif letter == "h":
        asked.directives["h"] = True
    else:
        asked.drop(f"-{letter}: it is for the command that submits")


def _letter(letter: str, value: str, asked: Asked) -> None:
    fields = {"N": "name", "A": "account", "q": "queue", "d": "workdir", "w": "workdir", "D": "workdir"}
    if not value:
        asked.refuse(f"-{letter} has no value")
    elif letter in fields:
        asked.fields[fields[letter]] = value
    elif letter == "l":
        for name, text in resources(value):
            _resource(name, text, asked)
    elif letter in "oe":
        asked.drop(f"-{letter}: {LOGS}")
    elif letter == "j":
        asked.drop(f"-j {value}: a rank's log always holds both streams")
    elif letter == "r":
        if value == "y":
            asked.fields["requeue.max"] = 1
            asked.note(
                "-r y: castoff starts a run again at most requeue.max times, when its program asks for it"
            )
        else:
            asked.drop("-r n: castoff's scripts have it, too")
    elif letter == "S":
        asked.drop("-S: castoff's script names its shell in the first line; the profile's `shell` is another")
        if value not in ("/bin/bash", "/bin/sh"):
            asked.profile[f"shell: {value}"] = f"from -S {value}; castoff's scripts are for bash"
    elif letter == "M":
        asked.fields["mail.to"] = value.split(",")[0]
        if "," in value:
            asked.refuse(f"-M {value}: mail.to is one address")
    elif letter == "m":
        on = [event for kind, event in _EVENTS.items() if kind in value]
        if on:
            asked.fields["mail.on"] = on
        else:
            asked.drop(f"-m {value}: no mail is the default")
    elif letter in "Jt":
        indices, _, most = value.partition("%")
        asked.fields["array"] = {"indices": indices}
        if most.isdecimal():
            asked.fields["array"]["max_concurrent"] = int(most)
    elif letter == "v":
        _variables(value, asked)
    elif letter == "W":
        _attributes(value, asked)
    else:
        raw(letter, value, DIALECT, asked, f"-{letter}")


def _variables(text: str, asked: Asked) -> None:
    names: list[str] = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            asked.env[name.strip()] = value
        elif name.strip():
            names.append(name.strip())
    if names and asked.fields.get("inherit") != "all":
        asked.fields["inherit"] = names


def _attributes(text: str, asked: Asked) -> None:
    try:
        attributes = parse_attributes(text)
    except ValueError as error:
        asked.refuse(f"-W {error}")
        return
    if depend := attributes.pop("depend", None):
        after: dict[str, list[str]] = {}
        for one in depend.split(","):
            condition, *jobs = one.split(":")
            if condition not in ("after", "afterok", "afternotok", "afterany") or not jobs:
                asked.refuse(f"-W depend={depend}: `after` knows after, afterok, afternotok and afterany")
                return
            after.setdefault(condition, []).extend(jobs)
        asked.fields["after"] = after
    if attributes.pop("block", None):
        asked.drop("-W block: castoff wait does that")
    if attributes:
        others = attributes_text(attributes)
        raw("W", others, DIALECT, asked, f"-W {others}")


def resources(text: str) -> list[tuple[str, str]]:
    """What `-l` lists: names and values; a comma within a value ends nothing."""
    found: list[tuple[str, str]] = []
    for part in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*(?:=|$|,))", text):
        name, _, value = part.partition("=")
        found.append((name, value))
    return found


def _resource(name: str, value: str, asked: Asked) -> None:
    if name == "select":
        _select(value, asked)
    elif name == "nodes":
        _torque(value, asked)
    elif name == "walltime":
        total = seconds(value)
        if total:
            asked.fields["walltime"] = clock(total)
        else:
            asked.refuse(f"walltime is {value}, which is no duration")
    elif name == "ncpus":
        asked.nodes = asked.nodes or 1
        asked.count("node_cpus", value, "ncpus")
        asked.note(f"-l ncpus={value} is of one node; where it counts all nodes, as at NCI, set nodes")
    elif name in ("mem", "ngpus", "gpus", "mpiprocs"):
        _chunk(name, value, asked, {})
    elif name == "place" and "excl" in value.split(":"):
        asked.directives["place"] = value
    else:
        raw(name, value if value else True, DIALECT, asked, f"-l {name}")


def _select(text: str, asked: Asked) -> None:
    try:
        first, *others = parse_select(text)
    except ValueError as error:
        asked.refuse(f"select: {error}")
        return
    if not others:
        if rest := _of_chunk(first, asked):
            asked.fields["select"] = rest
        return
    kinds = [_kind(chunk, asked) for chunk in (first, *others)]
    asked.fields["select"] = kinds
    asked.nodes = sum(kind.get("nodes", 1) for kind in kinds)
    asked.ranks = sum(kind.get("nodes", 1) * kind["ranks_per_node"] for kind in kinds)


def _of_chunk(chunk: Chunk, asked: Asked) -> dict[str, Any]:
    """Of a chunk, set what jobs ask for by other fields; the rest."""
    asked.count("nodes", str(chunk.number), "the number of chunks in select")
    rest: dict[str, Any] = {}
    for name, value in chunk.resources.items():
        _chunk(name, value, asked, rest)
    return rest


def _kind(chunk: Chunk, job: Asked) -> dict[str, Any]:
    """One of several kinds of chunks in the words of a job file; what no kind has is said of the job."""
    asked = Asked()
    rest = _of_chunk(chunk, asked)
    job.remarks += asked.remarks
    job.env |= asked.env
    ranks = asked.ranks_per_node or 1  # as qsub counts
    said = {
        "nodes": asked.nodes,
        "ranks_per_node": ranks,
        "cores_per_rank": asked.node_cpus and asked.node_cpus // ranks,
        "devices_per_node": asked.node_devices,
        "memory": asked.fields.get("memory"),
    }
    return {**{name: value for name, value in said.items() if value}, **rest}


def _chunk(name: str, value: str, asked: Asked, rest: dict[str, Any]) -> None:
    counts = {
        "ncpus": "node_cpus",
        "mpiprocs": "ranks_per_node",
        "ngpus": "node_devices",
        "gpus": "node_devices",
    }
    if name in counts:
        if value == "0":
            asked.note(f"{name}=0 asks for none")
        else:
            asked.count(counts[name], value, name)
    elif name == "mem":
        found = re.fullmatch(r"(\d+)([kmgt]?)[bw]?", value, re.IGNORECASE)
        if found and int(found[1]) and found[2]:
            asked.fields["memory"] = f"{int(found[1])}{found[2].upper()}"
        else:
            asked.refuse(f"mem is {value}, which is no whole number of kb, mb, gb or tb")
    elif name == "ompthreads" and value.isdecimal():
        asked.env["OMP_NUM_THREADS"] = value
    else:
        rest[name] = value


def _torque(text: str, asked: Asked) -> None:
    """Torque's `nodes=2:ppn=4:gpus=1`, which PBS takes as well."""
    asked.memory_is_total = True
    first, *others = text.split("+")
    number, *parts = first.split(":")
    if number.isdecimal():
        asked.nodes = int(number)
    else:
        asked.nodes = 1
        asked.refuse(f"nodes={text} names hosts: castoff asks for a number of nodes")
    for part in parts:
        name, _, value = part.partition("=")
        if name == "ppn":
            asked.count("ranks_per_node", value, "ppn")
            asked.node_cpus = asked.ranks_per_node
        elif name == "gpus":
            asked.count("node_devices", value, "gpus")
        else:
            asked.refuse(f"{part!r} in nodes={text}: a property of nodes is a resource of a chunk in PBS")
    if others:
        asked.refuse(f"nodes={text} asks for nodes of several kinds: only the first is taken")
    asked.note(f"nodes={text} is Torque's way, which castoff writes as a select")


def _share(memory: str, nodes: int) -> str:
    """Each node's part of a job's memory, in the next smaller unit where it is not a whole number."""
    number, unit = int(memory[:-1]), memory[-1]
    while number % nodes and unit != "K":
        number, unit = number * 1024, "KMGT"["KMGT".index(unit) - 1]
    return f"{-(-number // nodes)}{unit}"


def seconds(text: str) -> int | None:
    """Seconds of `walltime`: a number, or with minutes, hours and days before it; None: it is none."""
    parts = text.split(".")[0].split(":")
    if not all(part.isdecimal() for part in parts) or len(parts) > 4:
        return None
    total = 0
    for factor, part in zip((1, 60, 3600, 86400), reversed(parts), strict=False):
        total += factor * int(part)
    return total or None


def finish(asked: Asked) -> None:
    """qsub hands a job nothing of the submitter's environment unless a directive says so, as castoff does."""
    if asked.memory_is_total and (asked.nodes or 1) > 1 and "memory" in asked.fields:
        asked.fields["memory"] = _share(asked.fields["memory"], asked.nodes or 1)
    if "mail.on" in asked.fields and "mail.to" not in asked.fields:
        kinds = {event: kind for kind, event in _EVENTS.items()}
        asked.directives["m"] = "".join(kinds[event] for event in asked.fields.pop("mail.on"))
    elif "mail.to" in asked.fields:
        asked.fields.setdefault("mail.on", ["fail"])  # qsub(1B), -m


def variables(asked: Asked) -> Mapping[str, str]:
    """What PBS's variables will hold, as far as it follows from the directives (qsub(1B))."""
    known = {"PBS_NUM_NODES": asked.nodes or 1, "PBS_NUM_PPN": asked.ranks_per_node, "NCPUS": asked.node_cpus}
    known["PBS_NNODES"] = asked.nodes or 1
    known["PBS_NP"] = _processes(asked)
    return {name: str(value) for name, value in known.items() if value is not None}


def output_of(command: str, asked: Asked) -> str | None:
    """What somebody counts in PBS_NODEFILE: nodes, or ranks, as each host stands there mpiprocs times."""
    if "PBS_NODEFILE" not in command or not re.search(r"\bwc\s+-l|\bwc\b", command):
        return None
    if re.search(r"\buniq\b|sort\s+-u", command):
        return str(asked.nodes or 1)
    return str(_processes(asked))


def _processes(asked: Asked) -> int:
    return asked.ranks or (asked.nodes or 1) * (asked.ranks_per_node or 1)


READER = ScriptReader(
    name=NAME,
    directive=re.compile(r"#PBS\b[ \t]*(.*)"),
    mistaken=re.compile(r"#[ \t]+PBS[ \t]+-"),
    ends_at_command=True,
    read=read,
    finish=finish,
    variables=variables,
    output_of=output_of,
    places=re.compile(
        r"PBS_NODEFILE|PBS_NUM_(?:NODES|PPN)|PBS_NODENUM|PBS_TASKNUM|PBS_NP\b|PMI_(?:RANK|SIZE)|PALS_"
    ),
    submit_dir=("PBS_O_WORKDIR",),
    title="qsub",
    starts_at_home=True,
    array_index=("PBS_ARRAY_INDEX", "PBS_ARRAYID"),
)
"""How qsub's scripts are read."""
