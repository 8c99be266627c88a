"""Which line of a script starts its ranks, and what it says. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from launcher.importing.contained import container
from launcher.importing.distributed import distributed
from launcher.importing.knowledge import Knowledge
from launcher.importing.programs import Inside, Reader, is_python, name_of
from launcher.importing.shell import Command, Statement, statements
from launcher.importing.shells import options_inlined, shell
from launcher.importing.words import NAME, assignment, inlined, literal
from launcher.launchers.foreign import lines
from launcher.launchers.foreign.asked import Asked
from launcher.launchers.foreign.line import Launch

_PREFIXES = {"exec", "time", "nohup", "command", "stdbuf", "nice"}

_CHORES = """
    . : [ [[ alias apt-get awk aws basename bc break cat cd chmod chown clear clinfo cmake cmp command
    conda continue cp curl cut date dcgmi declare df diff dirname docker dos2unix du echo egrep enroot
    env eval exit export expr false file find free fusermount gcc getent getopts git globus grep gsutil
    gunzip gzip hash head hostname hostnamectl huggingface-cli ibstat id ifconfig ip kill ldd less let
    lfs ln load local logout ls lsb_release lscpu make mamba mapfile md5sum micromamba mkdir mktemp ml
    module mount mpicc mv myquota newgrp nproc nvcc nvidia-smi ompi_info pip pip3 pkill popd printenv
    printf purge pushd pwd qdel qstat qsub quota ray rclone read readarray readlink readonly realpath
    redis-server reset return rm rmdir rocm-smi rsync s3cmd sacct sbatch sbcast scancel scontrol scp sed
    seq set sg sha256sum shift shopt sleep sort source spack squashfuse squeue ssh sstat stat stty sudo
    sycl-ls sync tail tar tee test touch tput tr trap tree true type typeset ulimit umask umount unalias
    uname uniq unset unuse unzip use wait wandb wc wget which whoami xargs xpu-smi yum
"""
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
    around: list[str]
    """The words of a program around the launcher, as `timeout 1h`."""
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
        single = re.fullmatch(rf'"?\$\{{?({NAME})\}}?"?', words[0]) if words else None
        if single and single[1] in knowledge.constants:
            words[0] = knowledge.constants[single[1]]
    prefix: list[tuple[str, str]] = []
    while words:
        pair = assignment(words[0])
        if pair is not None:
            prefix.append(pair)
        elif words[0] in _PREFIXES or (words[0] == "env" and any(assignment(word) for word in words[1:2])):
            if words[0] in ("stdbuf", "nice", "command", "time"):
                words = [words[0], *[word for word in words[1:] if not word.startswith("-")]]
        elif words[0] == "eval" and len(words) > 1:
            evaluated = [*inlined([word.strip('"') for word in words[1:]], knowledge.lists)]
            if len(evaluated) == 1 and re.search(r"\s", evaluated[0]):
                evaluated = ["bash", "-c", words[1]]  # it reads a text as a shell does
            words = ["eval", *evaluated]
        else:
            break
        words = words[1:]
    if not words:
        return None
    at = _behind_wrapper(words)
    around, words = words[:at], words[at:]
    strength = _strength(words, knowledge)
    return Candidate(number, command, at, words, prefix, around, strength) if strength else None


def _behind_wrapper(words: list[str]) -> int:
    """Where a launcher begins behind a program that starts it, as in `timeout 1h srun …`; 0: none does."""
    if _is_chore(words) or name_of(words[0]) in {*lines.NAMES, "bash", "sh"} or is_python(words[0]):
        return 0
    for at, word in enumerate(words):
        if word.endswith((".py", ".sh")) or distributed(words[at:], Reader({}, {}, lambda _: None)):
            return 0
        if at and name_of(word) in lines.NAMES:
            return at
    return 0


def _strength(words: list[str], knowledge: Knowledge) -> int:
    reader = _reader(knowledge)
    plain = [reader.plain(word) for word in inlined(words, knowledge.lists)]
    launch = lines.read(plain)
    if launch is not None:
        helper = not launch.program or _is_chore(launch.program)
        return 0 if helper else 3
    if distributed(words, reader) is not None:
        return 2
    inside = shell(words, reader)
    if inside is not None and inside.words != words:
        return _strength(inside.words, knowledge)
    return 0 if _is_chore(words) else 1


def _is_chore(words: list[str]) -> bool:
    first = name_of(words[0])
    if first in ("bash", "sh") and len(words) > 2 and words[2] and words[1] in ("-c", "-lc"):
        is_quoted = words[2][0] in "\"'" and words[2][-1] == words[2][0]
        inner = statements((literal(words[2]) or words[2][1:-1]) if is_quoted else words[2])
        return all(_is_chore(one.words) for found in inner for one in found.commands if one.words)
    if first == "uv":
        return words[1:2] != ["run"]
    if is_python(words[0]) and len(words) > 1:
        return words[1] in ("-c", "--version", "-V") or words[1:3] in (["-m", "pip"], ["-m", "venv"])
    return first in _CHORES.split() or bool(re.match(r"[\[{}()]|\$\(", words[0])) or first.startswith("_")


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


def _reader(knowledge: Knowledge) -> Reader:
    return Reader(knowledge.known, knowledge.constants, knowledge.output_of, knowledge.lists)


@dataclass
class Line:
    """A launch line, read from the outside to the inside."""

    words: list[str]
    """The program that every rank runs, as it is written."""
    launcher: Asked | None = None
    """What the launcher is asked for; None: there is none."""
    torch: Asked | None = None
    """What torchrun or its like is asked for."""
    container: Asked | None = None
    shell: Asked | None = None
    """What a shell around the program does."""
    one_per_node: bool = False
    quoted: bool = False
    """See `Inside`."""
    inside: bool = False
    """Whether a shell in each rank reads the words."""
    consumed: frozenset[str] = frozenset()
    """Variables whose words were taken into account."""


def read_line(candidate: Candidate, knowledge: Knowledge) -> Line:
    """Take a launch line apart."""
    reader = _reader(knowledge)
    line = Line(candidate.words)
    while line.words and _one_layer(line, reader):
        pass
    return line


def _one_layer(line: Line, reader: Reader) -> bool:
    """Take off the outermost program that starts another; whether there was one."""
    words, consumed = options_inlined(line.words, reader.lists)
    inside: Inside | None = None
    if line.launcher is None and line.torch is None and (launch := _launcher(words, reader)):
        line.launcher, line.one_per_node = launch.asked, launch.nodes_only
        line.words = words[len(words) - len(launch.program) :]
        line.consumed |= consumed
        while len(line.words) > 1 and _is_options(line.words[0], reader):
            line.launcher.refuse(
                f"what {line.words[0]} holds is not known before the job runs: write it in launcher.args"
            )
            line.words = line.words[1:]
        return True
    if line.container is None and (inside := container(words, reader)):
        line.container = inside.asked
    elif (inside := shell(line.words, reader)) and (
        _worth(inside.words, reader) or (line.launcher is None and name_of(inside.words[0]) in lines.NAMES)
    ):
        line.shell = inside.asked
        line.quoted, line.inside = inside.quoted, not inside.quoted
    elif line.torch is None and (inside := distributed(words, reader)):
        line.torch = inside.asked
    if inside is None:
        return False
    line.words = inside.words
    line.consumed |= inside.consumed | consumed
    return True


def _is_options(word: str, reader: Reader) -> bool:
    """Whether a variable holds options of the launcher, by its name, as nobody knows what is in it."""
    name = re.fullmatch(r"\$\{?(\w+)(?:\[[@*]\])?\}?", word)
    options = bool(name) and bool(re.search(r"(?i)(?:args?|opts?|options?|flags?)$", name[1] if name else ""))
    return options and reader.plain(word) == word


def _launcher(words: list[str], reader: Reader) -> Launch | None:
    launch = lines.read([reader.plain(word) for word in words])
    return launch if launch and launch.program else None


def _worth(words: list[str], reader: Reader) -> bool:
    """Whether a shell's program is taken out of it: where it starts ranks, or is a plain program."""
    return distributed(words, reader) is not None or is_python(words[0]) or words[0].startswith(("./", "/"))
