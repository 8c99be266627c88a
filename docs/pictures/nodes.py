"""Which rank has which cores and devices, on a node of some machines."""

from __future__ import annotations

from typing import Any

from castoff import JobSpec, Site, plan
from castoff.launcher.planning.picture import picture

SITES: dict[str, dict[str, Any]] = {
    "aurora": {"queue": "debug", "directives": {"pbs": {"filesystems": "home:flare"}}},
    "perlmutter": {"constraint": "gpu"},
}
"""And what a job needs there."""


def node(name: str) -> str:
    """A node of a job with a rank for each device, as `castoff render --picture` draws it."""
    job = {"name": "train", "command": ["python", "train.py"], "nodes": 2, "account": "MyProject"}
    site = Site.load(name)
    return picture(plan(JobSpec.of({**job, "walltime": "30m", **SITES[name]}), site), site.node)
