"""Describes each rank's share of its node, and what stays idle there, for the head of a script."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from castoff.launcher.launchers.base import Layout
from castoff.launcher.runs.plan import Plan
from castoff.launcher.text.words import counted


def share_words(plan: Plan) -> list[str]:
    """Return lines such as "each rank: 8 cores and 1 of 12 devices; 4 of 12 devices per node unused"."""
    if plan.driver:
        there = [(plan.cores_per_rank or 0, "core"), (plan.devices_per_rank, "device")]
        words = " and ".join(counted(count, what) for count, what in there if count)
        return [f"each node: {words}"] if words else []
    share = " and ".join(_of_each_rank(plan))
    if not share:
        return []
    unknown = plan.own_distribution or not Layout(plan.layout).is_even  # other nodes may have other devices
    unused = "" if unknown else _unused(plan)
    return textwrap.wrap(f"each rank: {share}{f'; {unused} unused' if unused else ''}", 110)


def _unused(plan: Plan) -> str:
    idle = [(_idle(plan, ranks), nodes) for ranks, nodes in plan.layout]
    if len({words for words, _ in idle}) == 1:
        return f"{idle[0][0]} per node" if idle[0][0] else ""
    nodes_in_words = (
        (words, "1 node" if nodes == 1 else f"each of {nodes} nodes") for words, nodes in idle if words
    )
    return ", ".join(f"{words} on {nodes}" for words, nodes in nodes_in_words)


def _of_each_rank(plan: Plan) -> Iterator[str]:
    devices, own = plan.devices_per_node, plan.devices_per_rank
    if plan.cores_per_rank:
        yield counted(plan.cores_per_rank, "core") + ("" if plan.bound else " (not bound to them)")
    if devices and not own:
        yield "no device"
    elif devices and plan.torchrun:
        yield "access to all devices of its node"
    elif devices:
        sharing = plan.layout[0][0] * own // devices
        shared = f", each of which {sharing} ranks share" if sharing > 1 else ""
        yield f"{own} of {counted(devices, 'device')}{shared}"


def _idle(plan: Plan, ranks: int) -> str:
    """Return a text about the devices or cores of a node that this many ranks leave idle."""
    parts = []
    if plan.cores_per_node and plan.cores_per_rank:
        left = plan.cores_per_node - ranks * plan.cores_per_rank
        parts += [f"{left} of {counted(plan.cores_per_node, 'core')}"] if left > 0 else []
    left = plan.devices_per_node - ranks * plan.devices_per_rank
    parts += [f"{left} of {counted(plan.devices_per_node, 'device')}"] if left > 0 else []
    return " and ".join(parts)
