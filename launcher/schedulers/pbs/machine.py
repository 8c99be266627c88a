"""What PBS says about its queues, server and nodes, as JSON.

Read after OpenPBS's source: display_statque() and display_statserver() in src/cmds/qstat.c,
src/cmds/pbsnodes.c, and pbs_queue_attributes(7B). `-F json` writes numbers for texts that look like
one, and versions before August 2025 (pull request 2678) write a limit of several parts as one key several
times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from launcher.schedulers.machine import Bounds, NodeKind, Question, Told, ToldQueue, kinds

QUESTIONS = [
    Question("queues", ["qstat", "-Q", "-f", "-F", "json"]),
    Question("server", ["qstat", "-B", "-f", "-F", "json"]),
    Question("nodes", ["pbsnodes", "-a", "-F", "json"], optional=True),
]

_LIMIT = re.compile(r"\[([up]):PBS_GENERIC=(\d+)\]")
"""A limit for each user (u) or for each project (p), in attributes such as max_queued."""


def parse(answers: Mapping[str, str]) -> Told:
    """What the answers say; it raises what `machine.ask` takes for an answer that cannot be read."""
    queues = _read(answers["queues"]).get("Queue", {})
    (server,) = _read(answers["server"])["Server"].values()
    members = server.get("max_array_size")
    default = server.get("default_queue")
    return Told(
        queues={str(name): _queue(str(name), held) for name, held in queues.items()},
        default_queue=None if default is None else str(default),
        array_count=None if members is None else int(members),
        array_source="qstat -Bf, max_array_size",
        nodes=_nodes(_read(answers["nodes"])["nodes"].values()) if "nodes" in answers else [],
        filesystems=_names(server.get("resources_available", {}).get("valid_filesystems", "")),
    )


def _read(answer: str) -> dict[str, Any]:
    data = json.loads(answer, object_pairs_hook=_all_of_each, strict=False)
    if not isinstance(data, dict):
        raise ValueError("it is no JSON object")
    return data


def _all_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that stands several times holds all of its texts."""
    data: dict[str, Any] = {}
    for key, value in pairs:
        data[key] = f"{data[key]}, {value}" if key in data and isinstance(value, str) else value
    return data


def _queue(name: str, held: Mapping[str, Any]) -> ToldQueue:
    least, most = held.get("resources_min", {}), held.get("resources_max", {})
    bounds = Bounds(
        _number(least.get("nodect")),
        _number(most.get("nodect")),
        _seconds(least.get("walltime")),
        _seconds(most.get("walltime")),
    )
    return ToldQueue(
        bounds,
        f"qstat -Qf {name}",
        max_jobs=_jobs(held),
        routes_to=tuple(each.partition("@")[0] for each in _names(held.get("route_destinations", ""))),
        offered=_is_true(held.get("enabled", True)) and not _is_true(held.get("from_route_only", False)),
    )


def _jobs(held: Mapping[str, Any]) -> int | None:
    """max_queued counts queued and running jobs; otherwise those two have limits of their own."""
    whole = _each(held.get("max_queued"))
    if whole is not None:
        return whole
    running, waiting = _each(held.get("max_run")), _each(held.get("queued_jobs_threshold"))
    return None if running is None or waiting is None else running + waiting


def _each(limit: Any) -> int | None:
    return min((int(number) for _, number in _LIMIT.findall(str(limit or ""))), default=None)


def _nodes(nodes: Any) -> list[NodeKind]:
    held = [node.get("resources_available", {}) for node in nodes]
    told = [(1, None, _number(has.get("ncpus")), _number(has.get("ngpus")) or 0) for has in held]
    return kinds(one for one in told if one[2])


def _names(text: Any) -> list[str]:
    return [name for name in re.split(r"[,:\s]+", str(text)) if name]


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1")


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _seconds(value: Any) -> int | None:
    """`01:30:00`, or seconds where it looks like a number."""
    if value is None:
        return None
    total = 0
    for part in str(value).split(":"):
        total = total * 60 + int(part)
    return total
