"""What a site's profile says a scheduler would refuse: checked before anything is queued."""

from __future__ import annotations

import re

from launcher.directives import (
    PBS_IN_SELECT,
    PBS_NEEDED,
    PBS_OWNED,
    PBS_WORDS,
    SLURM_NEEDED,
    SLURM_OWNED,
    SLURM_WORDS,
)
from launcher.document import did_you_mean
from launcher.errors import Problem
from launcher.quantities import clock, seconds
from launcher.site import Queue, Range, Site
from launcher.spec import JobSpec

_PBS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,199}")
"""OpenPBS's check_job_name() for -N: a letter, then letters, digits and -_.+. It takes 230, but the
name is also a part of file names."""

_LONGEST_GRACE = 65535
"""Seconds: what sbatch's --signal takes at the most."""

_SLURM_ONLY = {
    "qos": "drop it, or use a queue that stands for it",
    "constraint": "drop it, or use a queue of such nodes",
    "exclude": "drop it; PBS has no such request",
    "reservation": "drop it and give its name as queue, for a reservation is one there",
}


def site_problems(spec: JobSpec, site: Site, name: str, walltime: int | None, grace: int) -> list[Problem]:
    """Every reason why this site would refuse the job, or the job could not work there."""
    found = [
        *_stopping(site, walltime, grace),
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


def _stopping(site: Site, walltime: int | None, grace: int) -> list[tuple[str, str]]:
    if walltime == 0:
        return [("walltime", "is zero; give the job some time, as in 30m")]
    if walltime is not None and grace >= walltime:
        return [
            (
                "grace",
                f"is {grace} s, which leaves nothing of the walltime of {walltime} s: "
                f"lower grace (`grace: {walltime // 10}s`) or raise walltime",
            )
        ]
    if site.scheduler == "slurm" and walltime is not None and grace > _LONGEST_GRACE:
        message = f"is {grace} s, but Slurm's --signal takes {_LONGEST_GRACE} s at the most: lower it"
        return [("grace", message)]
    return []


def _required(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    missing = []
    for required in site.required:
        field, _, key = required.field.partition(".")
        held = {**site.directives, **spec.directives}.get(key) if key else getattr(spec, field)
        if held is None or held is False:
            why = f"is missing, and {site.name} needs it: {required.because.rstrip('.')}"
            source = f"({required.source}, {required.date})"
            missing.append((required.field, f"{why}; write, for example, {required.example} {source}"))
    return missing


def _directives(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    if site.scheduler == "local":
        return []
    owned, needed = (SLURM_OWNED, SLURM_NEEDED) if site.scheduler == "slurm" else (PBS_OWNED, PBS_NEEDED)
    found = []
    for name, value in spec.directives.items():
        removed = value is None or value is False
        message = None if removed else _misplaced(name, site)
        if message is None and name in owned and not removed:
            message = f"follows from other fields; set {owned[name]} instead"
        elif removed and (name in owned or name in needed) and _is_there(name, spec):
            reason = needed.get(name) or f"it follows from {owned[name]}"
            message = f"cannot be removed: {reason}"
        if message is not None:
            found.append((f"directives.{name}", message))
    return found


def _misplaced(name: str, site: Site) -> str | None:
    """What is wrong with a directive whatever its value."""
    slurm = site.scheduler == "slurm"
    if name in (PBS_WORDS if slurm else SLURM_WORDS):
        theirs, ours = ("PBS", "Slurm") if slurm else ("Slurm", "PBS")
        return (
            f"is {theirs}'s, but {site.name} runs {ours}: clear it here (--set directives.{name}=null), "
            f"or move it to the directives of a {theirs} site's profile"
        )
    if slurm and len(name) == 1:
        return "is a short flag; write the long one, as in constraint for C"
    if not slurm and name == "l":
        return "holds resources; write each by its own name, as in directives: {place: scatter}"
    if not slurm and name in PBS_IN_SELECT:
        return f"cannot stand beside the select that castoff writes; set {PBS_IN_SELECT[name]} instead"
    return None


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
        rule = "starts with a letter and holds letters, digits, - _ . and +, 200 at the most"
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
        message = "cannot go with array on PBS, where no single member can be submitted again; drop one"
        found.append(("requeue", message))
    return found


def _queue(spec: JobSpec, site: Site, name: str, walltime: int | None) -> list[tuple[str, str]]:
    queue = site.queues.get(name)
    if queue is None:
        hint = did_you_mean(name, site.queues)
        if site.other_queues and not hint:
            return []
        hint += " (a queue that is missing here goes into a profile that extends this site)" if hint else ""
        return [("queue", f"is {name!r}, which {site.name} does not have{hint or _known(site)}")]
    source = f"({queue.source}, {queue.date})"
    if queue.submit_to:
        return [
            (
                "queue",
                f"is {name!r}, which takes no jobs itself: write queue: {queue.submit_to} {source}",
            )
        ]
    found = []
    nodes = spec.nodes or 1
    if queue.ranges and not any(_fits(range_, nodes, walltime) for range_ in queue.ranges):
        asked = f"{_nodes(nodes)}" + (f" for {clock(walltime)}" if walltime else "")
        taken = " or ".join(_words(range_) for range_ in queue.ranges)
        found.append(
            (
                "queue",
                f"is {name!r}, which does not take {asked}; it takes {taken} {source}"
                f"{_others(site, nodes, walltime)}",
            )
        )
    if queue.max_jobs is not None:
        found += _job_limit(spec, queue, name, source)
    return found


def _job_limit(spec: JobSpec, queue: Queue, name: str, source: str) -> list[tuple[str, str]]:
    found = []
    if spec.array is not None and spec.array.count > (queue.max_jobs or 0):
        jobs = "1 job" if queue.max_jobs == 1 else f"{queue.max_jobs} jobs"
        message = (
            f"is {spec.array.count}, but {name} allows a user {jobs} queued or running {source}; "
            "lower it, or use another queue"
        )
        found.append(("array.count", message))
    if spec.requeue.max and spec.array is None and queue.max_jobs == 1:
        message = (
            f"cannot work in {name}: a job submits its own copy while it still runs, "
            f"and a user may have one {source}; use another queue"
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
    fewest, most = range_.min_nodes, range_.max_nodes
    if most is None:
        words = "any number of nodes" if fewest == 1 else f"at least {_nodes(fewest)}"
    else:
        words = _nodes(fewest) if fewest == most else f"{fewest} to {_nodes(most)}"
    shortest, longest = range_.min_walltime, range_.max_walltime
    if shortest and longest:
        return f"{words} for {shortest} to {longest}"
    if shortest or longest:
        return f"{words} for " + (f"up to {longest}" if longest else f"at least {shortest}")
    return words


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _others(site: Site, nodes: int, walltime: int | None) -> str:
    fitting = [
        name
        for name, queue in site.queues.items()
        if any(_fits(range_, nodes, walltime) for range_ in queue.ranges)
    ]
    return f"; what would: {', '.join(fitting)}" if fitting else ""


def _known(site: Site) -> str:
    return f"; there are: {', '.join(site.queues)}"
