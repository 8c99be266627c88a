"""A job's requests as scheduler directives: ordered names and values, ready to quote.

Four layers, the later wins: castoff's defaults, the site's directives, what the job file's typed
fields ask for, and its `directives:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from launcher.config.job import JobSpec
from launcher.config.quantities import clock
from launcher.config.site import Site
from launcher.schedulers.given_directives import of_scheduler

Directives: TypeAlias = "list[tuple[str, str | bool]]"
Layer: TypeAlias = "list[tuple[str, str | bool | None]]"

_JOB_ID = re.compile(r"[0-9]+(_[0-9]+|\[[0-9]*\])?(\.[A-Za-z0-9.-]+)?")
"""A Slurm or PBS job id: 123, 123_4, 123.host, 123[].host."""

_PBS_EVENTS = {"begin": "b", "end": "e", "fail": "a"}


class Resources(NamedTuple):
    """What the directives need to know of a plan's decisions."""

    name: str
    nodes: int
    tasks_per_node: int
    cores_per_task: int | None
    devices_per_task: int
    devices_per_node: int
    whole_nodes: bool
    """Whether the job has its nodes for itself, with all their devices."""
    walltime: int | None
    """Seconds."""
    grace: int
    """Seconds."""
    after: str | None
    """A dependency of scheduler ids alone, in the scheduler's words."""


def slurm(spec: JobSpec, site: Site, resources: Resources) -> Directives:
    """A job's Slurm directives, in the order in which a person would write them."""
    asked: Layer = [
        ("job-name", resources.name),
        ("account", spec.account),
        ("partition", spec.queue),
        ("qos", spec.qos),
        ("constraint", spec.constraint),
        ("reservation", spec.reservation),
        ("exclude", spec.exclude),
        ("exclusive", spec.exclusive),
        ("nodes", str(resources.nodes)),
        ("ntasks-per-node", str(resources.tasks_per_node)),
        ("cpus-per-task", _text(site.slurm_cpus(resources.cores_per_task))),
        *slurm_devices(site, resources.devices_per_task, resources.devices_per_node, resources.whole_nodes),
        ("mem", spec.memory),
        ("time", clock(resources.walltime) if resources.walltime else None),
        ("array", _array(spec, 0)),
        ("dependency", resources.after),
        ("mail-user", spec.mail.to if spec.mail else None),
        ("mail-type", ",".join(spec.mail.on).upper() if spec.mail else None),
    ]
    own: Layer = [
        ("output", "%x-%A_%a.out" if spec.array else "%x-%j.out"),
        ("open-mode", "append"),
        ("signal", f"B:USR2@{resources.grace}" if resources.walltime else None),
        ("requeue" if spec.requeue.max else "no-requeue", True),
        ("export", _slurm_export(spec)),
    ]
    return _layered([name for name, _ in (*asked, *own)], own, site, asked, spec)


def slurm_devices(site: Site, per_task: int, per_node: int, whole_nodes: bool) -> Directives:
    """How Slurm is asked for the job's devices: one directive, or none."""
    if not per_node:
        return []
    if site.gpu_request == "gres":
        return [("gres", f"gpu:{site.slurm_gpus(per_node)}")]
    if site.gpu_request == "gpus-per-task":  # of whole nodes the job has all, and srun divides them
        return [] if whole_nodes else [("gpus-per-task", site.slurm_gpus(per_task))]
    return [("gpus-per-node", site.slurm_gpus(per_node))]


def _slurm_export(spec: JobSpec) -> str:
    """NIL, unlike NONE, does not make Slurm guess the user's login environment."""
    if spec.inherit == "all":
        return "ALL"
    names = list(spec.inherit) if isinstance(spec.inherit, list) else []
    return ",".join([*names, *spec.env_from]) or "NIL"


def pbs(spec: JobSpec, site: Site, resources: Resources) -> Directives:
    """A job's PBS directives: one letter is an option, a word is a resource of -l."""
    array = spec.array is not None and spec.array.count > 1  # PBS refuses -J 0-0
    asked: Layer = [
        ("N", resources.name),
        ("A", spec.account),
        ("q", spec.queue),
        ("select", _select(spec, site, resources)),
        ("place", "scatter:excl" if spec.exclusive else None),
        ("walltime", clock(resources.walltime) if resources.walltime else None),
        ("filesystems", None),
        ("J", _array(spec, 0) if array else None),
        ("W", f"depend={resources.after}" if resources.after else None),
        ("M", spec.mail.to if spec.mail else None),
        ("m", "".join(_PBS_EVENTS[event] for event in spec.mail.on) if spec.mail else None),
        *_pbs_environment(spec),
    ]
    # PBS runs a job again after a node failure by default, and insists on it for arrays.
    own: Layer = [("j", "oe"), ("r", "y" if array or spec.requeue.max else "n")]
    return _layered([name for name, _ in (*asked, *own)], own, site, asked, spec)


def _pbs_environment(spec: JobSpec) -> Directives:
    if spec.inherit == "all":
        return [("V", True)]
    if isinstance(spec.inherit, list) and spec.inherit:
        return [("v", ",".join(spec.inherit))]
    return []


def _select(spec: JobSpec, site: Site, resources: Resources) -> str:
    spelled = {
        "ncpus": str(resources.tasks_per_node * (resources.cores_per_task or 1)),
        "mpiprocs": str(resources.tasks_per_node),
        "ngpus": str(resources.devices_per_node) if resources.devices_per_node else None,
        "mem": f"{spec.memory.lower()}b" if spec.memory else None,
    }
    chunk = [f"{name}={spelled[name]}" for name in site.select if spelled[name] is not None]
    return ":".join([str(resources.nodes), *chunk])


def is_job_id(name: str) -> bool:
    """Whether a word is an id as Slurm and PBS give them."""
    return _JOB_ID.fullmatch(name) is not None


def dependency(after: Mapping[Any, list[str]]) -> str | None:
    """`after` in the words that Slurm and PBS share, where every entry is a scheduler's id.

    A run's name is resolved at submission, so then the whole dependency is an argument there.
    """
    if not after or not all(is_job_id(name) for names in after.values() for name in names):
        return None
    return ",".join(":".join([condition, *names]) for condition, names in after.items())


def own_dependency(decided: Directives) -> str | None:
    """What a script's own directive waits for, in the words that Slurm and PBS share; None: nothing."""
    found = next((str(value) for name, value in decided if name in ("dependency", "W")), None)
    return None if found is None else found.removeprefix("depend=")


def _layered(order: list[str], own: Layer, site: Site, asked: Layer, spec: JobSpec) -> Directives:
    merged: dict[str, str | bool] = {}
    wanted = [(name, value) for name, value in asked if value is not None]
    of_site, of_job = (of_scheduler(given, site.scheduler) for given in (site.directives, spec.directives))
    for name, value in (*own, *of_site.items(), *wanted, *of_job.items()):
        if value is None or value is False:
            merged.pop(name, None)
        else:
            merged[name] = value
    first = [(name, merged.pop(name)) for name in order if name in merged]
    return [*first, *merged.items()]


def _array(spec: JobSpec, first: int) -> str | None:
    if spec.array is None:
        return None
    span = f"{first}-{first + spec.array.count - 1}"
    return f"{span}%{spec.array.at_most}" if spec.array.at_most else span


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
