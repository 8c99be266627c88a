"""When a job restarts its ranks, and what it requires of hosts before. Pure."""

from __future__ import annotations

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import seconds, size
from castoff.launcher.config.site import Site
from castoff.launcher.runs.plan import PreflightPlan, RestartPlan

_NOT_RESTARTED = [2, 126, 127]
"""Exit codes of a program that was called wrongly, or that does not exist: it would be so again."""


def restarts(spec: JobSpec) -> RestartPlan | None:
    """What a job says of restarts and of hangs; None: nothing."""
    asked = spec.restart
    hang = seconds(asked.hang) if asked.hang else None
    if not asked.max and hang is None:
        return None
    never = _NOT_RESTARTED if asked.never is None else asked.never
    return RestartPlan(asked.max or 0, asked.spare_nodes or 0, hang, never)


def preflight(spec: JobSpec, site: Site, devices: int, *, whole_nodes: bool) -> PreflightPlan | None:
    """What each host has to have; `devices`: those of a node that the job has."""
    wanted = bool(spec.restart.spare_nodes) if spec.preflight is None else spec.preflight
    if not wanted:
        return None
    of_node = site.node.memory if site.node and whole_nodes else None
    memory = spec.memory or of_node
    own = wanted if isinstance(wanted, list) else []
    return PreflightPlan(own, devices, size(memory) // 1024 if memory else 0)
