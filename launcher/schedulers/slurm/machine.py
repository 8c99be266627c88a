"""What Slurm says about its partitions, QOS and nodes.

Read from a real 22.05.8. Sources: https://slurm.schedmd.com/scontrol.html, sinfo.html, sacctmgr.html.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from launcher.schedulers.machine import Bounds, Question, Told, ToldQueue, kinds

QUESTIONS = [
    Question("partitions", ["scontrol", "--all", "show", "partition", "--oneliner"]),
    Question("config", ["scontrol", "show", "config"]),
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


def seconds(time: str) -> int | None:
    """Seconds of a time as Slurm writes it; None where there is no limit.

    `90` is minutes, `30:00` minutes and seconds, `1:30:00` hours, `1-12` days and hours.

    Raises:
        ValueError: it is no such time.
    """
    if time.upper() in _NO_LIMIT:
        return None
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", time):
        raise ValueError(f"{time!r} is no time of Slurm's")
    days, dash, clock = time.rpartition("-")
    given = [int(part) for part in clock.split(":")]
    if not dash and len(given) < 3:
        given = [0, *given]
    hours, minutes, rest = [*given, 0, 0][:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest


def parse(answers: Mapping[str, str]) -> Told:
    """What the answers say; it raises what `machine.ask` takes for an answer that cannot be read."""
    qos = _qos(answers["qos"]) if "qos" in answers else None
    config = dict(re.findall(r"^(\w+) *= (.*?) *$", answers["config"], re.MULTILINE))
    partitions = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in answers["partitions"].splitlines()]
    submit_filter = config.get("JobSubmitPlugins", "")
    return Told(
        queues={fields["PartitionName"]: _partition(fields, qos or {}) for fields in partitions if fields},
        qos=qos,
        default_queue=next((one["PartitionName"] for one in partitions if one.get("Default") == "YES"), None),
        # The largest index is one less, and ours count from 0.
        array_count=int(config["MaxArraySize"]),
        array_source="scontrol show config, MaxArraySize",
        nodes=kinds(
            (int(count), int(sockets) * int(cores), None, _devices(gres))
            for count, sockets, cores, gres in (line.split("|") for line in answers["nodes"].splitlines())
        ),
        submit_filter=None if submit_filter.upper() in _NO_LIMIT else f"JobSubmitPlugins={submit_filter}",
    )


def _partition(fields: Mapping[str, str], qos: Mapping[str, ToldQueue]) -> ToldQueue:
    """A partition; the QOS that hangs on it binds every job in it too."""
    name = fields["PartitionName"]
    least, most = _number(fields["MinNodes"]) or None, _number(fields["MaxNodes"])
    own = Bounds(least, most, None, seconds(fields["MaxTime"]))
    extra = qos.get(fields.get("QoS", ""), ToldQueue(Bounds(), ""))
    bounds = Bounds(*map(_tighter, (max, min, max, min), own, extra.bounds))
    source, offered = f"scontrol show partition {name}", fields.get("Hidden") != "YES"
    return ToldQueue(bounds, source, extra.max_jobs, extra.max_devices, offered=offered)


def _qos(answer: str) -> dict[str, ToldQueue]:
    found = {}
    for line in answer.splitlines():
        name, wall, most, least, submitted = line.split("|")
        most_of, least_of = _tres(most), _tres(least)
        bounds = Bounds(least_of.get("node"), most_of.get("node"), None, seconds(wall))
        found[name] = ToldQueue(
            bounds, f"sacctmgr show qos {name}", _number(submitted), most_of.get("gres/gpu")
        )
    return found


def _tres(text: str) -> dict[str, int]:
    """`node=8,gres/gpu=2` as numbers; memory, which has units, is of no use here."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    return {name: int(number) for name, _, number in pairs if number.isdecimal()}


def _devices(gres: str) -> int:
    """GPUs of `gpu:a100:4(S:0-1),nic:1`."""
    bare = re.sub(r"\([^)]*\)", "", gres)
    parts = [part.split(":") for part in bare.split(",")]
    return sum(int(words[-1]) for words in parts if words[0] == "gpu" and words[-1].isdecimal())


def _number(text: str) -> int | None:
    return None if text.upper() in _NO_LIMIT else int(text)


def _tighter(choose: Callable[..., int | None], one: int | None, other: int | None) -> int | None:
    return choose([bound for bound in (one, other) if bound is not None], default=None)
