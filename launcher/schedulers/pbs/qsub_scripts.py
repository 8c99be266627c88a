"""Reads qsub's directives in scripts that castoff has not written, as qsub(1B) of PBS and of Torque do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.schedulers.dialect import after_of
from castoff.launcher.schedulers.pbs import NAME
from castoff.launcher.schedulers.pbs.attributes import attributes_text, parse_attributes
from castoff.launcher.schedulers.pbs.qsub_directives import DIALECT
from castoff.launcher.schedulers.pbs.select import parse_select
from castoff.launcher.schedulers.script_reader import (
    REQUEUE,
    SUBMITS,
    ScriptReader,
    as_written,
    raw,
    read_field,
)

_LETTERS_WITH_VALUES = "aAcCdDeIJhklmMNoOpPqrSStuvWwR"
_FLAGS = "fhIVXzxn"
_EVENTS = {"b": "begin", "e": "end", "a": "fail"}


def read(rest: str, asked: Asked) -> None:
    """Read the text after `#PBS`."""
    words = _arguments(rest)
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        letter = word[1:2]
        if not word.startswith("-") or not letter:
            asked.refuse(f"{word!r} is not an option of qsub")
            return
        if (letter in _FLAGS and letter not in "hI") or (letter in "hI" and len(word) == 2):
            _flag(letter, asked)
            continue
        value = word[2:]
        if not value:
            value = words[position] if position < len(words) else ""
            position += 1
        _letter(letter, value, asked)


def _arguments(rest: str) -> list[str]:
    """Split a text into words, up to a comment, which begins with # after a space."""
    try:
        plain = shlex.shlex(rest, posix=True, punctuation_chars="")
        plain.whitespace_split, plain.commenters, plain.escape = True, "", ""
        words = list(plain)
    except ValueError:
        words = rest.split()
    comment = next((position for position, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _flag(letter: str, asked: Asked) -> None:
    if letter == "V":
        asked.fields["inherit"] = "all"
    elif letter in "IX":
        asked.refuse(f"-{letter} makes an interactive job; castoff launch starts ranks in such a job")
    elif letter == "h":
        raw("h", True, DIALECT, asked, "-h")
    else:
        asked.drop(f"-{letter}: {SUBMITS}")


def _letter(letter: str, value: str, asked: Asked) -> None:
    if not value:
        asked.refuse(f"-{letter} has no value")
    elif letter in "dwD":
        asked.fields["workdir"] = value
    elif letter == "l":
        for name, text in resources(value):
            _resource(name, text, asked)
    elif letter in "oejk":
        as_written(letter, value, DIALECT, asked, f"-{letter}")
    elif letter == "r":
        if value == "y":
            asked.fields["requeue"] = dict(REQUEUE)
        else:
            asked.drop("-r n: castoff's scripts have it, too")
    elif letter == "S":
        raw(letter, value, DIALECT, asked, "-S")
        asked.shell = value.partition("@")[0]
    elif letter == "m":
        asked.fields["mail.on"] = value
    elif letter == "v":
        _variables(value, asked)
    elif letter == "W":
        _attributes(value, asked)
    elif not read_field("J" if letter == "t" else letter, value, DIALECT, asked, f"-{letter}"):
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
        try:
            asked.fields["after"] = after_of(depend)
        except ValueError as error:
            asked.refuse(f"-W depend={depend} {error}")
            return
    if attributes.pop("block", None):
        asked.drop("-W block: castoff wait does that")
    if attributes:
        others = attributes_text(attributes)
        raw("W", others, DIALECT, asked, f"-W {others}")


def resources(text: str) -> list[tuple[str, str]]:
    """Split the list in `-l` into names and values; a value may contain commas."""
    pairs: list[tuple[str, str]] = []
    for part in re.split(r",(?=[A-Za-z_][A-Za-z0-9_]*(?:=|$|,))", text):
        name, _, value = part.partition("=")
        pairs.append((name, value))
    return pairs


def _resource(name: str, value: str, asked: Asked) -> None:
    if name == "walltime" and read_field(name, value, DIALECT, asked, name):
        return
    if name not in (*_SIZES, "select", "nodes"):
        raw(name, value if value else True, DIALECT, asked, f"-l {name}")
        if name == "place" and "excl" in re.split("[:=]", value):
            asked.fields["exclusive"] = True
        return
    before = len(asked.remarks)
    if name == "select":
        _select(value, asked)
    elif name == "nodes":
        _torque(value, asked)
    else:
        _chunk(name, value, asked, {})
    if name in ("ncpus", "mem"):
        asked.is_unclear(f"-l {name} without select leaves the placement to PBS")
    if all(remark.fate == "note" for remark in asked.remarks[before:]):
        as_written(name, value, DIALECT, asked, f"-l {name}")


_SIZES = {"ncpus": "node_cpus", "mpiprocs": "ranks_per_node", "ngpus": "node_devices", "gpus": "node_devices"}
_SIZES |= {"mem": ""}


def _select(text: str, asked: Asked) -> None:
    try:
        first, *others = parse_select(text)
    except ValueError as error:
        asked.refuse(f"select: {error}")
        return
    rest: dict[str, Any] = {}
    asked.count("nodes", str(first.number), "the number of chunks in select")
    for name, value in first.resources.items():
        _chunk(name, value, asked, rest)
    for chunk in others:
        of_chunk = Asked()
        for name, value in chunk.resources.items():
            _chunk(name, value, of_chunk, {})
        asked.remarks += of_chunk.remarks
    if rest:
        asked.of_ranks["select"] = rest
    if others:
        asked.is_unclear("select asks for chunks of several kinds")
        asked.nodes = first.number + sum(chunk.number for chunk in others)
        # the resources differ between nodes
        asked.node_cpus = asked.node_devices = asked.ranks_per_node = None
        asked.fields.pop("memory", None)


def _chunk(name: str, value: str, asked: Asked, rest: dict[str, Any]) -> None:
    """Read the request for each chunk; `rest` collects resources that no other field holds."""
    if name == "mem":
        match = re.fullmatch(r"(\d+)([kmgt]?)[bw]?", value, re.IGNORECASE)
        if match and int(match[1]) and match[2]:
            asked.fields["memory"] = f"{int(match[1])}{match[2].upper()}"
        else:
            asked.refuse(f"mem is {value}, which is not a whole number of kb, mb, gb or tb")
    elif name in _SIZES and value != "0":
        asked.count(_SIZES[name], value, name)
    elif name not in _SIZES:
        rest[name] = value


def _torque(text: str, asked: Asked) -> None:
    """Read Torque's `nodes=2:ppn=4:gpus=1`, which PBS accepts as well."""
    asked.memory_is_total = True
    for part_of_nodes in text.split("+"):
        number, *parts = part_of_nodes.split(":")
        nodes = int(number) if number.isdecimal() else 1
        asked.nodes = (asked.nodes or 0) + nodes
        if not number.isdecimal() or asked.nodes > nodes:
            asked.is_unclear(f"nodes={text} asks for nodes by name, or of several kinds")
        for part in parts:
            name, _, value = part.partition("=")
            if name == "ppn":
                asked.count("ranks_per_node", value, "ppn")
                asked.node_cpus = asked.ranks_per_node
            elif name == "gpus":
                asked.count("node_devices", value, "gpus")
            else:
                asked.is_unclear(f"nodes={text} asks for nodes with a property")


def _share(memory: str, nodes: int) -> str:
    """Return each node's share of a job's memory, in the next smaller unit if the share is not a whole
    number.
    """
    number, unit = int(memory[:-1]), memory[-1]
    while number % nodes and unit != "K":
        number, unit = number * 1024, "KMGT"["KMGT".index(unit) - 1]
    return f"{-(-number // nodes)}{unit}"


def finish(asked: Asked) -> None:
    """Apply qsub's defaults: as with castoff, a job inherits no environment unless a directive
    requests that.
    """
    if asked.memory_is_total and (asked.nodes or 1) > 1 and "memory" in asked.fields:
        asked.fields["memory"] = _share(asked.fields["memory"], asked.nodes or 1)
    asked.nodes = asked.nodes or 1
    kinds, to = asked.fields.pop("mail.on", None), asked.fields.pop("mail.to", None)
    if to and (kinds is None or {*kinds} <= {*_EVENTS}) and not re.search(r"[,\s]", to):
        asked.fields |= {"mail.to": to, "mail.on": [_EVENTS[kind] for kind in kinds or "a"]}  # qsub(1B), -m
        return
    for letter, value in (("m", kinds), ("M", to)):
        if value:
            raw(letter, value, DIALECT, asked, f"-{letter}")


def variables(asked: Asked) -> Mapping[str, str | None]:
    """Return OMP_NUM_THREADS, which PBS sets to the threads of a chunk's programs (start_exec.c of OpenPBS
    23).
    """
    select = asked.of_ranks.get("select", {})
    return {"OMP_NUM_THREADS": str(select.get("ompthreads") or asked.node_cpus or 1)}


READER = ScriptReader(
    name=NAME,
    directive=re.compile(r"[ \t]*#PBS\b[ \t]*(.*)"),
    mistaken=re.compile(r"#[ \t]+PBS[ \t]+-"),
    ends_at_command=True,
    read=read,
    finish=finish,
    variables=variables,
    sizes=re.compile(r"PBS_NUM_PPN|PBS_NP\b"),
    same_in_ranks=re.compile(r"PBS_(?:JOBID|JOBNAME|O_WORKDIR|ARRAY_\w+|ARRAYID|NODEFILE|QUEUE)"),
    own=re.compile(
        r"\bPBS_\w*|(?<![\w./-])(?:qsub|qstat|qdel|qalter|qrerun|qhold|qrls|pbsdsh|pbs_tmrsh|pbsnodes)(?![\w.-])"
    ),
    mark="#PBS",
    title="qsub",
    scheduler="PBS",
    submit_dir="PBS_O_WORKDIR",
    array_index="PBS_ARRAY_INDEX",
    starts_at_home=True,
)
"""The reader of qsub's scripts."""
