"""What PBS says about its queues, server and nodes.

Read after OpenPBS's source: display_statque() and display_statserver() in src/cmds/qstat.c,
src/cmds/pbsnodes.c, and pbs_queue_attributes(7B).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from launcher.schedulers.machine_info import MachineInfo, Question, QueueInfo, outermost
from launcher.schedulers.pbs.jobs import blocks

QUESTIONS = [
    Question("queues", ["qstat", "-Q", "-f"]),
    Question("server", ["qstat", "-B", "-f"]),
    Question("nodes", ["pbsnodes", "-a"], optional=True),
]

_LIMIT = re.compile(r"\[[up]:PBS_GENERIC=(\d+)\]")
"""A limit for each user (u) or for each project (p), in attributes such as max_queued."""


def parse(answers: Mapping[str, str]) -> MachineInfo:
    """What the answers say; it raises what `machine.ask` takes for an answer that cannot be read."""
    asked = {name: dict(blocks(answer)) for name, answer in answers.items()}
    (server,) = asked["server"].values()
    nodes = [
        (int(held["resources_available.ncpus"]), int(held.get("resources_available.ngpus", 0)))
        for held in asked.get("nodes", {}).values()
        if "resources_available.ncpus" in held
    ]
    members = server.get("max_array_size")
    return MachineInfo(
        queues={name: _queue(held, asked["queues"]) for name, held in asked["queues"].items()},
        default_queue=server.get("default_queue"),
        array_count=None if members is None else int(members),
        nodes=list(dict.fromkeys(nodes)),
        counts_threads=True,
    )


def _queue(held: Mapping[str, str], queues: Mapping[str, Mapping[str, str]]) -> QueueInfo:
    """A queue; a routing one takes what those take that it hands its jobs to, within limits of its own."""
    reached = [held]
    if routes := held.get("route_destinations"):
        names = [each.strip().partition("@")[0] for each in routes.split(",")]
        reached = [queues[name] for name in names if name in queues]

    def bound(outer: Callable[..., int], inner: Callable[..., int], name: str) -> int | None:
        least = "1" if name == "resources_min.nodect" else None
        behind = outermost(outer, (_number(one.get(name, least)) for one in reached))
        own = _number(held.get(name))
        return inner((each for each in (behind, own) if each is not None), default=None)

    return QueueInfo(
        bound(min, max, "resources_min.nodect"),
        bound(max, min, "resources_max.nodect"),
        bound(min, max, "resources_min.walltime"),
        bound(max, min, "resources_max.walltime"),
        max_jobs=_jobs(held),
        offered=held.get("enabled") != "False" and held.get("from_route_only") != "True",
    )


def _jobs(held: Mapping[str, str]) -> int | None:
    """max_queued counts queued and running jobs; otherwise those two have limits of their own."""
    both, running, waiting = (
        min(map(int, _LIMIT.findall(held.get(name, ""))), default=None)
        for name in ("max_queued", "max_run", "queued_jobs_threshold")
    )
    if both is None and running is not None and waiting is not None:
        return running + waiting
    return both


def _number(text: str | None) -> int | None:
    """A number, or the seconds of `01:30:00`."""
    if text is None:
        return None
    hours, minutes, rest = [0, 0, *map(int, text.split(":"))][-3:]  # hours as many as there are: 99999:00:00
    return (hours * 60 + minutes) * 60 + rest
