"""What a site's profile says a scheduler would refuse: checked before anything is queued."""

from __future__ import annotations

import re

from launcher.directives import PBS_NEEDED, PBS_OWNED, SLURM_NEEDED, SLURM_OWNED
from launcher.document import did_you_mean
from launcher.errors import Problem
from launcher.quantities import clock, seconds
from launcher.site import Queue, Range, Site
from launcher.spec import JobSpec

_PBS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,229}")
"""OpenPBS's check_job_name() for -N: a letter, then letters, digits and -_.+, 230 at the most."""

_SLURM_ONLY = {
    "qos": "drop it, or use a queue that stands for it",
    "constraint": "name the resource in directives.select",
    "exclude": "name hosts to use instead, in directives.select",
    "reservation": "a reservation is a queue there: write its name as queue",
}


def site_problems(spec: JobSpec, site: Site, name: str, walltime: int | None, grace: int) -> list[Problem]:
    """Every reason why this site would refuse the job, or the job could not work there."""
    found = [
        *_stopping(walltime, grace),
        *_required(spec, site),
        *_directives(spec, site),
        *_names(site, name),
        *_arrays(spec, site),
    ]
    if site.scheduler == "pbs":
        found += [
            (field, f"is Slurm's; {site.name} runs PBS: {fix}")
            for field, fix in _SLURM_ONLY.items()
            if getattr(spec, field) is not None
        ]
    if spec.queue is not None:
        found += _queue(spec, site, spec.queue, walltime)
    return [Problem(f"{name} on {site.name}", field, message) for field, message in found]


def _stopping(walltime: int | None, grace: int) -> list[tuple[str, str]]:
    if walltime == 0:
        return [("walltime", "is zero; give the job some time, as in 30m")]
    if walltime is not None and grace >= walltime:
        return [
            (
                "grace",
                f"is {grace} s, which leaves nothing of the walltime of {walltime} s: "
                f"lower grace (`grace: {max(walltime // 10, 1)}s`) or raise walltime",
            )
        ]
    return []


def _required(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    missing = []
    for required in site.required:
        field, _, key = required.field.partition(".")
        held = {**site.directives, **spec.directives}.get(key) if key else getattr(spec, field)
        if held is None or held is False:
            message = f"is missing. {required.because} Write, for example, {required.example}"
            missing.append((required.field, f"{message} ({required.source}, {required.date})"))
    return missing


def _directives(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    if site.scheduler == "local":
        return []
    owned, needed = (SLURM_OWNED, SLURM_NEEDED) if site.scheduler == "slurm" else (PBS_OWNED, PBS_NEEDED)
    found = []
    for name, value in spec.directives.items():
        field = f"directives.{name}"
        if site.scheduler == "slurm" and len(name) == 1:
            found.append((field, "is a short flag; write the long one, as in constraint for C"))
        elif name in owned and value is not None and value is not False:
            found.append((field, f"follows from other fields; set {owned[name]} instead"))
        elif name in owned or name in needed:
            removed = value is None or value is False
            if removed and _is_there(name, spec):
                reason = needed.get(name) or f"it follows from {owned[name]}"
                found.append((field, f"cannot be removed: {reason}"))
    return found


def _is_there(name: str, spec: JobSpec) -> bool:
    """Whether the directive would be rendered at all, so that removing it means something."""
    held = {
        "requeue": bool(spec.requeue.max),
        "no-requeue": not spec.requeue.max,
        "signal": spec.walltime is not None,
        "array": spec.array is not None,
        "J": spec.array is not None,
        "dependency": bool(spec.after),
        "W": bool(spec.after),
        "V": spec.inherit == "all",
        "v": isinstance(spec.inherit, list),
        "time": spec.walltime is not None,
        "walltime": spec.walltime is not None,
        "cpus-per-task": spec.cores_per_rank is not None,
    }
    return held.get(name, True)


def _names(site: Site, name: str) -> list[tuple[str, str]]:
    if site.scheduler == "pbs" and not _PBS_NAME.fullmatch(name):
        rule = "starts with a letter and holds letters, digits, - _ . and +, 230 at the most"
        return [("name", f"is {name!r}, but a PBS job's name {rule}")]
    if "/" in name or name in (".", ".."):
        return [("name", f"is {name!r}, but names log files and folders: it cannot hold /")]
    if len(name.encode()) > 200:
        return [("name", f"is {len(name.encode())} bytes long, but names log files: 200 at the most")]
    return []


def _arrays(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    if spec.array is None:
        return []
    found = []
    if site.array and spec.array.count > site.array.max_count:
        found.append(
            (
                "array.count",
                f"is {spec.array.count}, but {site.name} takes {site.array.max_count} at the most "
                f"({site.array.source}, {site.array.date}); split it, or raise array.max_count in a "
                "profile of your site",
            )
        )
    if spec.requeue.max and site.scheduler == "pbs":
        found.append(
            (
                "requeue",
                "cannot go with array on PBS, where no single member can be submitted again",
            )
        )
    return found


def _queue(spec: JobSpec, site: Site, name: str, walltime: int | None) -> list[tuple[str, str]]:
    queue = site.queues.get(name)
    if queue is None:
        hint = did_you_mean(name, site.queues)
        if site.other_queues and not hint:
            return []
        return [("queue", f"is {name!r}, which {site.name} does not have{hint or _known(site)}")]
    source = f"({queue.source}, {queue.date})"
    if queue.submit_to:
        return [
            (
                "queue",
                f"is {name!r}, which takes no jobs itself: submit to {queue.submit_to} {source}",
            )
        ]
    found = []
    nodes = spec.nodes or 1
    if queue.ranges and not any(_fits(range_, nodes, walltime) for range_ in queue.ranges):
        asked = f"{nodes} nodes" + (f" for {clock(walltime)}" if walltime else "")
        taken = " or ".join(_words(range_) for range_ in queue.ranges)
        found.append(
            (
                "queue",
                f"{name} does not take {asked}; it takes {taken} {source}{_others(site, nodes, walltime)}",
            )
        )
    if queue.max_jobs is not None:
        found += _job_limit(spec, queue, name, source)
    return found


def _job_limit(spec: JobSpec, queue: Queue, name: str, source: str) -> list[tuple[str, str]]:
    found = []
    if spec.array is not None and spec.array.count > (queue.max_jobs or 0):
        message = f"is {spec.array.count}, but {name} allows a user {queue.max_jobs} at a time {source}"
        found.append(("array.count", message))
    if spec.requeue.max and queue.max_jobs == 1:
        message = (
            f"cannot work in {name}: a job submits its own copy while it still runs, "
            f"and a user may have one {source}"
        )
        found.append(("requeue", message))
    return found


def _fits(range_: Range, nodes: int, walltime: int | None) -> bool:
    if nodes < range_.min_nodes or (range_.max_nodes is not None and nodes > range_.max_nodes):
        return False
    if walltime is None:
        return True
    shortest = seconds(range_.min_walltime) if range_.min_walltime else 0
    longest = seconds(range_.max_walltime) if range_.max_walltime else walltime
    return shortest <= walltime <= longest


def _words(range_: Range) -> str:
    nodes = f"{range_.min_nodes} to {range_.max_nodes} nodes" if range_.max_nodes else "any nodes"
    shortest, longest = range_.min_walltime, range_.max_walltime
    if longest is None:
        return nodes
    return f"{nodes} for {f'{shortest} to ' if shortest else 'up to '}{longest}"


def _others(site: Site, nodes: int, walltime: int | None) -> str:
    fitting = [
        name
        for name, queue in site.queues.items()
        if any(_fits(range_, nodes, walltime) for range_ in queue.ranges)
    ]
    return f"; what would: {', '.join(fitting)}" if fitting else ""


def _known(site: Site) -> str:
    return f"; there are: {', '.join(site.queues)}"
