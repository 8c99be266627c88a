"""What Slurm says about its partitions, QOS and nodes.

Read from a real 22.05.8. Sources: https://slurm.schedmd.com/scontrol.html, sinfo.html, sacctmgr.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from launcher.config.quantities import seconds
from launcher.schedulers.machine_info import MachineInfo, Question, QueueInfo
from launcher.schedulers.slurm.scheduler import SCHEDULER

QUESTIONS = [
    Question("partitions", ["scontrol", "--all", "show", "partition", "--oneliner"]),
    Question("config", SCHEDULER.config_command),
    # One line for each kind of node, where `scontrol show nodes` has one for each node.
    Question("nodes", ["sinfo", "--noheader", "--exact", "--all", "--format=%D|%X|%Y|%G"]),
    Question(
        "qos",
        [
            *("sacctmgr", "--noheader", "--parsable2", "show", "qos"),
            "format=Name,MaxWall,MaxTRES,MinTRES,MaxSubmitPU",
        ],
        optional=True,
    ),
]

_NO_LIMIT = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "NOT_SET", "(NULL)"}


def parse(answers: Mapping[str, str]) -> MachineInfo:
    """What the answers say; it raises what `machine.ask` takes for an answer that cannot be read."""
    qos = _qos(answers["qos"]) if "qos" in answers else None
    partitions = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in answers["partitions"].splitlines()]
    nodes = [line.split("|") for line in answers["nodes"].splitlines()]
    return MachineInfo(
        queues={fields["PartitionName"]: _partition(fields, qos or {}) for fields in partitions},
        qos=qos,
        default_queue=next((one["PartitionName"] for one in partitions if one.get("Default") == "YES"), None),
        array_count=SCHEDULER.read_configuration(answers["config"]).largest_array,
        nodes=list(
            dict.fromkeys((int(sockets) * int(cores), _devices(gres)) for _, sockets, cores, gres in nodes)
        ),
    )


def _partition(fields: Mapping[str, str], qos: Mapping[str, QueueInfo]) -> QueueInfo:
    """A partition; the QOS that hangs on it binds every job in it too."""
    most, longest = _number(fields["MaxNodes"]), _number(fields["MaxTime"], seconds)
    extra = qos.get(fields.get("QoS", ""), QueueInfo())
    return extra._replace(
        min_nodes=max(int(fields["MinNodes"]), extra.min_nodes or 1),
        max_nodes=min(filter(None, (most, extra.max_nodes)), default=None),
        max_walltime=min(filter(None, (longest, extra.max_walltime)), default=None),
        offered=fields.get("Hidden") != "YES",
    )


def _qos(answer: str) -> dict[str, QueueInfo]:
    found = {}
    for line in answer.splitlines():
        name, wall, most, least, submitted = line.split("|")
        most_of, least_of = _tres(most), _tres(least)
        found[name] = QueueInfo(
            min_nodes=least_of.get("node", 1),
            max_nodes=most_of.get("node"),
            max_walltime=_number(wall, seconds),
            max_jobs=_number(submitted),
            max_devices=most_of.get("gres/gpu"),
        )
    return found


def _tres(text: str) -> dict[str, int]:
    """`node=8,gres/gpu=2` as numbers, without what has units."""
    return {name: int(number) for name, number in re.findall(r"([^=,]+)=(\d+)(?=,|$)", text)}


def _devices(gres: str) -> int:
    """GPUs of `gpu:a100:4(S:0-1),nic:1`."""
    return sum(map(int, re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)(?=[,(]|$)", gres)))


def _number(text: str, read: Callable[[str], int] = int) -> int | None:
    """A limit; scontrol and sacctmgr write times as job files have them, `D-HH:MM:SS`."""
    return None if text.upper() in _NO_LIMIT else read(text)
