"""What LSF reports about its queues and hosts (bqueues(1), lshosts(1))."""

from __future__ import annotations

import re
from collections.abc import Mapping

from castoff.launcher.schedulers.machine_info import (
    Machine,
    MachineInfo,
    NodeKind,
    Question,
    QueueInfo,
    kinds,
)

_QUESTIONS = [
    Question("cluster", ["lsid"]),
    Question("queues", ["bqueues", "-w"]),
    Question("nodes", ["lshosts", "-w"]),
]

_UNITS = {"M": 1, "G": 1024, "T": 1024**2}


def parse(answers: Mapping[str, str]) -> MachineInfo:
    """What the answers say. See `Machine.parse`."""
    name = re.search(r"^My cluster name is (\S+)", answers["cluster"], re.MULTILINE)
    queues = [line.split() for line in answers["queues"].splitlines()[1:]]
    return MachineInfo(
        queues={
            words[0]: QueueInfo(
                accepts_jobs=words[2].startswith("Open"), starts_jobs=words[2].endswith(":Active")
            )
            for words in queues
            if len(words) > 2
        },
        nodes=kinds(
            NodeKind(int(cores), memory=_mebibytes(memory))
            for _, _, _, _, cores, memory, _, server, *_ in map(str.split, answers["nodes"].splitlines()[1:])
            if server == "Yes" and cores.isdecimal()
        ),
        counts_threads=True,
        name=name and name[1],
        version=answers["cluster"].partition("\n")[0] or None,
        sources={"queues": "bqueues", "nodes": "lshosts -w"},
        questions=(
            (
                "How many GPUs has a node? lshosts does not say.",
                ("node: {devices: [4], device_variable: CUDA_VISIBLE_DEVICES}",),
            ),
        ),
    )


def _mebibytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([MGT])", text)
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


MACHINE = Machine(_QUESTIONS, parse)
