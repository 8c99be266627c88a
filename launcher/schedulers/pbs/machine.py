"""What PBS says about its queues, server and nodes.

Read after OpenPBS's source: display_statque() and display_statserver() in src/cmds/qstat.c,
src/cmds/pbsnodes.c, and pbs_queue_attributes(7B).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from launcher.config.quantities import seconds
from launcher.schedulers.machine import Question, Told, ToldQueue, outermost
from launcher.schedulers.pbs.jobs import blocks

QUESTIONS = [
    Question("queues", ["qstat", "-Q", "-f"]),
    Question("server", ["qstat", "-B", "-f"]),
    Question("nodes", ["pbsnodes", "-a"], optional=True),
]

_LIMIT = re.compile(r"\[[up]:PBS_GENERIC=(\d+)\]")
"""A limit for each user (u) or for each project (p), in attributes such as max_queued."""


def parse(answers: Mapping[str, str]) -> Told:
    """What the answers say; it raises what `machine.ask` takes for an answer that cannot be read."""
    asked = {name: dict(blocks(answer)) for name, answer in answers.items()}
    (server,) = asked["server"].values()
    nodes = [
        (int(held["resources_available.ncpus"]), int(held.get("resources_available.ngpus", 0)))
        for held in asked.get("nodes", {}).values()
        if "resources_available.ncpus" in held
    ]
    members = server.get("max_array_size")
    return Told(
        queues={name: _queue(held, asked["queues"]) for name, held in asked["queues"].items()},
        default_queue=server.get("default_queue"),
        array_count=None if members is None else int(members),
        nodes=list(dict.fromkeys(nodes)),
        counts_threads=True,
    )


def _queue(held: Mapping[str, str], queues: Mapping[str, Mapping[str, str]]) -> ToldQueue:
    """A queue; a routing one takes what those take that it hands its jobs to."""
    reached = [held]
    if routes := held.get("route_destinations"):
        names = [each.strip().partition("@")[0] for each in routes.split(",")]
        reached = [queues[name] for name in names if name in queues]
    return ToldQueue(
        outermost(min, (_number(one.get("resources_min.nodect", "1")) for one in reached)),
        outermost(max, (_number(one.get("resources_max.nodect")) for one in reached)),
        outermost(min, (_number(one.get("resources_min.walltime")) for one in reached)),
        outermost(max, (_number(one.get("resources_max.walltime")) for one in reached)),
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
    return seconds(text) if ":" in text else int(text)
