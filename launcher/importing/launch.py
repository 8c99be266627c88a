"""Which line of a script starts its ranks, and what it says. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from launcher.importing import programs
from launcher.importing.knowledge import Knowledge
from launcher.importing.programs import Inside, Reader, is_python, name_of
from launcher.importing.shell import Command, Statement
from launcher.importing.words import NAME, assignment, inlined
from launcher.launchers.foreign import lines
from launcher.launchers.foreign.asked import Asked

_PREFIXES = {"exec", "time", "nohup", "command", "stdbuf", "nice"}

_CHORES = frozenset(
    "module ml source . export cd pushd popd mkdir rmdir echo printf conda mamba micromamba pip pip3 uv date hostname "
    "nvidia-smi rocm-smi rm cp mv ln cat ls set unset ulimit umask which env printenv sleep wait trap exit pwd test [ "
    "[[ true false touch tar unzip gunzip gzip rsync git alias unalias eval spack tee head tail sed awk grep egrep sort "
    "uniq wc cut tr scontrol squeue sacct sstat sbcast scp ssh curl wget kill pkill df du free lscpu lsb_release command "
    "read local declare typeset readonly let shift return break continue getopts hash stty uname whoami id basename "
    "dirname seq find xargs chmod chown type shopt ldd file stat readlink realpath getent ip ifconfig ibstat ulimit "
    "mapfile readarray function : newgrp sg sbatch qsub scancel qdel qstat flux-resource sudo apt-get yum nproc numactl-H "
    "enroot docker squashfuse mount umount fusermount ray redis-server ompi_info mpicc make cmake gcc nvcc date mktemp "
    "sync logout clear tput use unuse load purge lfs quota myquota xpu-smi sycl-ls clinfo hostnamectl dcgmi tree less "
    "diff cmp md5sum sha256sum bc expr dos2unix reset starccm aws gsutil s3cmd rclone globus huggingface-cli wandb".split()
)
"""Commands that prepare something, look at something, or clean up."""

_TRAINS = re.compile(r"train|finetune|fine[-_]tune", re.IGNORECASE)


class Candidate(NamedTuple):
    """A command that may be the one which starts the ranks."""

    statement: int
    """Which statement it stands in."""
    command: Command
    at: int
    """Which command of it."""
    words: list[str]
    """Its words, without what only stands in front of a program."""
    prefix: list[tuple[str, str]]
    """Variables that it sets for the program alone."""
    strength: int
    """3: a launcher of many processes, 2: torchrun and its like, 1: another program."""


def candidates(body: list[Statement], knowledge: list[Knowledge]) -> list[Candidate]:
    """All commands that may be, in order; `knowledge`: of the variables where each statement begins."""
    found = []
    for number, statement in enumerate(body):
        for at, command in enumerate(statement.commands):
            one = _candidate(number, at, command, knowledge[number])
            if one is not None:
                found.append(one)
    return found


def _candidate(number: int, at: int, command: Command, knowledge: Knowledge) -> Candidate | None:
    words = [*command.words]
    if words and re.match(r"\"?\$", words[0]):
        words = [*inlined(words[:1], knowledge.lists), *words[1:]]
        single = re.fullmatch(rf'"?\$\{{?({NAME})\}}?"?', words[0])
        if single and single[1] in knowledge.constants:
            words[0] = knowledge.constants[single[1]]
    prefix: list[tuple[str, str]] = []
    while words:
        pair = assignment(words[0])
        if pair is not None:
            prefix.append(pair)
        elif words[0] in _PREFIXES or (words[0] == "env" and any(assignment(word) for word in words[1:2])):
            if words[0] in ("stdbuf", "nice", "command"):
                words = [words[0], *[word for word in words[1:] if not word.startswith("-")]]
        elif words[0] == "eval" and len(words) > 1:
            words = ["eval", *inlined([word.strip('"') for word in words[1:]], knowledge.lists)]
        else:
            break
        words = words[1:]
    if not words:
        return None
    strength = _strength(words, knowledge)
    return Candidate(number, command, at, words, prefix, strength) if strength else None


def _strength(words: list[str], knowledge: Knowledge) -> int:
    reader = Reader(knowledge.known, knowledge.constants, knowledge.output_of)
    plain = [reader.plain(word) for word in inlined(words, knowledge.lists)]
    launch = lines.read(plain)
    if launch is not None:
        helper = not launch.program or _is_chore(launch.program)
        return 0 if helper else 3
    if programs.distributed(words, reader) is not None:
        return 2
    inside = programs.shell(words, reader)
    if inside is not None and inside.words != words:
        return _strength(inside.words, knowledge)
    return 0 if _is_chore(words) else 1


def _is_chore(words: list[str]) -> bool:
    first = name_of(words[0])
    if first in ("bash", "sh") and len(words) > 2 and words[1] in ("-c", "-lc"):
        return _is_chore([word for word in re.split(r"[\s\"']+", " ".join(words[2:])) if word] or ["true"])
    if is_python(words[0]) and len(words) > 1:
        return words[1] in ("-c", "--version", "-V") or words[1:3] in (["-m", "pip"], ["-m", "venv"])
    return first in _CHORES or bool(re.match(r"[\[{}()]|\$\(", words[0])) or first.startswith("_")


def chosen(found: list[Candidate], body: list[Statement]) -> Candidate | None:
    """The one that starts the ranks: of the strongest, the last that trains, by its words, else the last.

    One in a loop or a condition counts less than one of the same strength outside.
    """
    if not found:
        return None

    def rank(one: Candidate) -> tuple[int, bool, bool, int]:
        nested = bool(body[one.statement].compound)
        trains = bool(_TRAINS.search(" ".join(one.words)))
        return (one.strength, trains, not nested, one.statement)

    return max(found, key=rank)


class Line(NamedTuple):
    """A launch line, read from the outside to the inside."""

    words: list[str]
    """The program that every rank runs, as it is written."""
    launcher: Asked | None
    """What the launcher is asked for; None: there is none."""
    torch: Asked | None
    """What torchrun or its like is asked for."""
    container: Asked | None
    one_per_node: bool
    remarks: list[str]
    called: str
    """What the launcher is called."""


def read_line(candidate: Candidate, knowledge: Knowledge) -> Line:
    """Take a launch line apart."""
    reader = Reader(knowledge.known, knowledge.constants, knowledge.output_of)
    launcher: Asked | None = None
    torch: Asked | None = None
    container: Asked | None = None
    one_per_node, called = False, ""
    words = candidate.words
    while words:
        if launcher is None and torch is None and (read := _launcher(words, reader, knowledge)):
            launch, words = read
            launcher, one_per_node, called = launch.asked, launch.nodes_only, launch.launcher
            continue
        inside: Inside | None = None
        if container is None and (inside := programs.container(words, reader)):
            container = inside.asked
        elif (inside := programs.shell(words, reader)) and _worth(inside.words, reader):
            knowledge_of_shell = inside.asked
            torch = torch or None
            container = container or None
            if launcher is not None:
                launcher.remarks += knowledge_of_shell.remarks
        elif torch is None:
            flat = [*inlined(words, knowledge.lists)] if _has_lists_of_options(words, knowledge) else words
            inside = programs.distributed(flat, reader)
            torch = inside.asked if inside else None
        if inside is None or inside.words == words:
            break
        words = inside.words
    return Line(words, launcher, torch, container, one_per_node, [], called)


def _has_lists_of_options(words: list[str], knowledge: Knowledge) -> bool:
    """Whether variables with options stand before the program."""
    for word in words[1:]:
        name = re.fullmatch(rf'"?\$\{{?({NAME})(?:\[[@*]\])?\}}?"?', word)
        if name and name[1] in knowledge.lists:
            return any(one.startswith("-") for one in knowledge.lists[name[1]])
        if word.endswith(".py"):
            return False
    return False


def _launcher(
    words: list[str], reader: Reader, knowledge: Knowledge
) -> tuple[lines.Launch, list[str]] | None:
    flat = [*words[:1], *_options_inlined(words[1:], knowledge)]
    plain = [reader.plain(word) for word in flat]
    launch = lines.read(plain)
    if launch is None or not launch.program:
        return None
    return launch, flat[len(flat) - len(launch.program) :]


def _options_inlined(words: list[str], knowledge: Knowledge) -> list[str]:
    """Words with lists in the place of variables that hold options or commands, down to the program."""
    found: list[str] = []
    for at, word in enumerate(words):
        name = re.fullmatch(rf'"?\$\{{?({NAME})(?:\[[@*]\])?\}}?"?', word)
        if name and name[1] in knowledge.lists:
            found += inlined([word], knowledge.lists)
        elif word.endswith(".py"):
            return found + words[at:]
        else:
            found.append(word)
    return found


def _worth(words: list[str], reader: Reader) -> bool:
    """Whether a shell's program is taken out of it: where it starts ranks, or is a plain program."""
    return (
        programs.distributed(words, reader) is not None
        or is_python(words[0])
        or words[0].startswith(("./", "/"))
    )
