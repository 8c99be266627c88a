"""Reads the command line of an mpiexec: those of PALS, MPICH, Intel MPI and Open MPI share many options."""

from __future__ import annotations

import re

from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.launchers.foreign.asked import Asked
from castoff.launcher.launchers.foreign.line import HOSTS, LABELS, Launch, variable
from castoff.launcher.launchers.foreign.options import Option, Table

_MPIEXEC = Table(
    values="""
        n,np,c ppn,npernode,N,perhost depth,d cpu-bind,bind-to map-by rank-by
        hostfile,f,machinefile,hosts,host,H env genv x mca wdir,wd host gpu-bind mem-bind
        genvlist envlist configfile path prefix timeout report-child-jobs-separately tag app
        oversubscribe-limit prepend-rank rmk bootstrap launcher iface hostlist j cc pmi
        output-filename ranks-per-proc cpus-per-proc cpus-per-rank gpus-per-rank pernode-limit
    """,
    flags="""
        line-buffer label,l no-vni genvall envall genvnone oversubscribe allow-run-as-root
        bind-to-core report-bindings display-map tag-output quiet,q v,verbose nooversubscribe
        pernode exclusive nolocal
    """,
    one_dash=True,
)


def read_mpiexec(words: list[str]) -> Launch:
    """Read what an mpiexec command requests."""
    asked = Asked()
    options, program = _MPIEXEC.read(_pairs(words[1:]))
    signs: set[LauncherName] = set()
    for option in options:
        _mpiexec_option(option, asked, words, signs)
    flags = words[: len(words) - len(program)]
    if not signs and any(word.partition("=")[0] == "--bind-to" for word in flags):
        signs.add("openmpi")  # Hydra has that flag, too, but its manual writes it with one dash
    if ":" in program:
        asked.refuse("several programs joined by :, and a job file has one program in all ranks")
        program = program[: program.index(":")]
    for name in _SIGNS:
        if name in signs:
            asked.fields["launcher.name"] = name
            break
    return Launch("", asked, program)


def _pairs(words: list[str]) -> list[str]:
    """Join the two values of `-mca NAME VALUE` and `-genv NAME VALUE` into one."""
    joined_words: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        if word.lstrip("-") in ("mca", "genv", "env") and word.startswith("-") and position + 1 < len(words):
            two = "=" not in words[position + 1] and position + 2 < len(words)
            joined = f"{words[position + 1]}={words[position + 2]}" if two else words[position + 1]
            joined_words.append(f"--{word.lstrip('-')}={joined}")
            position += 3 if two else 2
            continue
        joined_words.append(word)
        position += 1
        if not word.startswith("-") and not (joined_words[-2:-1] and joined_words[-2].startswith("-")):
            return joined_words + words[position:]
    return joined_words


_SIGNS: tuple[LauncherName, ...] = ("pals", "openmpi", "hydra")
"""The launchers that flags can identify: if flags fit several launchers, the first in this order wins."""


def _mpiexec_option(option: Option, asked: Asked, words: list[str], signs: set[LauncherName]) -> None:
    name, value = option.name, option.value or ""
    if (
        name in ("depth", "line-buffer", "no-vni", "mem-bind", "gpu-bind", "exclusive")
        or "--cpu-bind" in words
    ):
        signs.add("pals")
    elif name in (
        "x",
        "map-by",
        "rank-by",
        "mca",
        "oversubscribe",
        "report-bindings",
        "allow-run-as-root",
        "pernode",
    ):
        signs.add("openmpi")
    elif name in ("genv", "genvall", "genvlist", "rmk", "bootstrap", "iface"):
        signs.add("hydra")
    if name == "n":
        asked.count("ranks", value, "the number of ranks")
    elif name == "ppn":
        asked.count("ranks_per_node", value, "the number of ranks on a node")
    elif name == "pernode":
        asked.ranks_per_node = 1
    elif name == "map-by" and (mapped := re.fullmatch(r"ppr:(\d+):(?:node|host)(?::PE=(\d+))?", value, re.I)):
        asked.ranks_per_node = int(mapped[1])
        if mapped[2]:
            asked.cpus_per_rank = int(mapped[2])
    elif name == "depth":
        asked.fields.setdefault("launcher.args", []).append(f"--depth={value}")
        asked.note(
            "--depth counts what PALS binds each rank to; cores_per_rank would say it for every launcher"
        )
    elif name in ("env", "genv", "x"):
        variable(value, asked)
    elif name in ("hostfile", "wdir"):
        asked.drop(f"--{name}: {HOSTS}" if name == "hostfile" else "--wdir: workdir replaces it")
    elif name in (
        "line-buffer",
        "label",
        "tag",
        "tag-output",
        "quiet",
        "v",
        "output-filename",
        "prepend-rank",
    ):
        asked.drop(f"--{name}: {LABELS}")
    elif name in ("genvall", "envall", "genvlist", "envlist", "genvnone"):
        asked.drop(f"--{name}: ranks see all that setup exports")
    elif name in ("configfile", "app"):
        asked.refuse(f"--{name} reads the ranks' programs from a file, and a job file has one program")
    else:
        asked.fields.setdefault("launcher.args", []).extend(_as_given(name, value, option, words))


def _as_given(name: str, value: str, option: Option, words: list[str]) -> list[str]:
    """Return an option as it was written, since an mpiexec distinguishes one dash from two."""
    spellings = {word.partition("=")[0]: word for word in words if word.lstrip("-").partition("=")[0] == name}
    spelling = next(iter(spellings), None)
    if spelling is None:  # the option was written with another of its names
        others = [word for word in words if _MPIEXEC.meant.get(word.lstrip("-").partition("=")[0]) == name]
        spelling = others[0].partition("=")[0] if others else f"--{name}"
    if option.value is None:
        return [spelling]
    if name == "mca":
        return [spelling, *value.partition("=")[::2]]
    return [f"{spelling}={value}"] if f"{spelling}={value}" in words else [spelling, value]
