"""A program that starts its own workers on all hosts of the job: `launcher.driver`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.planning.containers import RUNTIMES
from castoff.launcher.planning.limits import Kind


def problems(spec: JobSpec, *, function: bool) -> Iterator[tuple[str, str]]:
    """Why a job's program cannot be one."""
    if not spec.launcher.driver:
        return
    if function and spec.script is not None:
        yield "script", "excludes the Python function that this job runs: drop it"
    elif function:
        yield "launcher.driver", "is for a command, and this job runs a Python function: drop it"
    runtime = spec.container.runtime if spec.container.image is not None else None
    if runtime is not None and RUNTIMES[runtime].of_launcher:
        others = ", ".join(name for name, other in RUNTIMES.items() if not other.of_launcher)
        without = "but srun makes its container, and a driver starts without srun"
        yield "container.runtime", f"is {runtime}, {without}: use another ({others}), or drop launcher.driver"


def devices(spec: JobSpec, site: Site, shared: Kind | None) -> int:
    """Those of each node: all that a job can have, unless it says otherwise."""
    if spec.devices_per_rank is not None:
        return spec.devices_per_rank
    of_node = site.node.device_count if site.node else 0
    return min(of_node, shared.max_devices) if shared else of_node
