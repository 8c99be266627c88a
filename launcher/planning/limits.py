"""What a site's profile says a scheduler would refuse: checked before anything is queued."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from launcher.config.document import did_you_mean
from launcher.config.job import JobSpec, RequeueWay
from launcher.config.quantities import clock, seconds, size
from launcher.config.site import Queue, Range, Site, nodes_words, range_words
from launcher.errors import Problem, shown
from launcher.schedulers.directives import of_scheduler
from launcher.schedulers.given_directives import directive_problems
from launcher.schedulers.registry import queued, scheduler_of


def site_problems(spec: JobSpec, site: Site, name: str, walltime: int | None, grace: int) -> list[Problem]:
    """Every reason why this site would refuse the job, or the job could not work there."""
    found = [
        *_stopping(site, walltime, grace),
        *_required(spec, site),
        *directive_problems(spec, site),
        *_memory(spec, site),
        *_names(site, name),
        *_arrays(spec, site),
        *_going_on(spec, site),
    ]
    own = scheduler_of(site.scheduler)
    found += [
        (field, f"is nothing to {own.title}, which {site.name} runs: {fix}")
        for field, fix in own.lacks.items()
        if getattr(spec, field) is not None
    ]
    for kind in _kinds(spec, site):
        known = {field for field, _ in found}
        found += [problem for problem in _queue(spec, site, kind, walltime) if problem[0] not in known]
    return [Problem(f"{name} on {site.name}", field, message) for field, message in found]


class Shared(NamedTuple):
    """A queue or QOS in which jobs share nodes."""

    field: Literal["queue", "qos"]
    name: str
    max_devices: int
    """Devices of a node that a job may have."""
    source: str


def sharing_queue(spec: JobSpec, site: Site) -> Shared | None:
    """The queue or QOS, if the job goes to one in which jobs share nodes."""
    for kind in _kinds(spec, site):
        queue = kind.known.get(kind.name)
        if queue is not None and queue.max_devices is not None:
            return Shared(kind.field, kind.name, queue.max_devices, f"({queue.source}, {queue.date})")
    return None


class _Kind(NamedTuple):
    """What a job goes to: a queue, or a QOS."""

    field: Literal["queue", "qos"]
    name: str
    known: dict[str, Queue]
    others: bool
    """Whether there are such that the profile does not list."""
    asked: bool
    """Whether the job names it; otherwise it is what counts where a job names none."""


def _kinds(spec: JobSpec, site: Site) -> Iterator[_Kind]:
    queue, qos = spec.queue or site.default_queue, spec.qos or site.default_qos
    if queue is not None and queued(site.scheduler):
        yield _Kind("queue", queue, site.queues, site.other_queues, asked=spec.queue is not None)
    if qos is not None and scheduler_of(site.scheduler).has_qos:
        yield _Kind("qos", qos, site.qos, site.other_qos, asked=spec.qos is not None)


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
    own = scheduler_of(site.scheduler)
    if own.longest_grace is not None and walltime is not None and grace > own.longest_grace:
        message = (
            f"is {grace} s, but {own.title}'s --signal takes {own.longest_grace} s at the most: lower it"
        )
        return [("grace", message)]
    return []


def _required(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    missing = []
    of_site, of_job = (of_scheduler(given, site.scheduler) for given in (site.directives, spec.directives))
    for required in site.required:
        field, _, key = required.field.partition(".")
        held = {**of_site, **of_job}.get(key) if key else getattr(spec, field)
        if held is None or held is False:
            why = f"is missing, and {site.name} needs it: {required.because.rstrip('.')}"
            source = f"({required.source}, {required.date})"
            missing.append((required.field, f"{why}; write, for example, {required.example} {source}"))
    return missing


def _memory(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    node = site.node
    if queued(site.scheduler) is None or node is None or node.memory is None or spec.memory is None:
        return []
    if size(spec.memory) <= size(node.memory):
        return []
    source = f"({site.name}: {node.source}, {node.date})"
    return [
        ("memory", f"is {spec.memory}, but a node has {node.memory} {source}: lower it, or use more nodes")
    ]


def _names(site: Site, name: str) -> list[tuple[str, str]]:
    if problem := scheduler_of(site.scheduler).name_problem(name):
        return [("name", problem)]
    if "/" in name or name in (".", ".."):
        return [("name", f"is {shown(name)}, but names log files and folders: it cannot hold /")]
    if len(name.encode()) > 200:
        return [("name", f"is {len(name.encode())} bytes long, but names log files: 200 at the most")]
    return []


def _arrays(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    if spec.array is None:
        return []
    found = []
    if (
        site.array
        and spec.array.count > site.array.max_count
        and not scheduler_of(site.scheduler).splits_arrays
    ):
        found.append(
            (
                "array.count",
                f"is {spec.array.count}, but {site.name} takes {site.array.max_count} at the most "
                f"({site.array.source}, {site.array.date}); split it, or raise array.max_count in a "
                "profile of your site",
            )
        )
    return found


def requeue_way(spec: JobSpec) -> RequeueWay:
    """How a job goes on where its scheduler starts none twice."""
    return spec.requeue.how or "copy"


def _members(spec: JobSpec) -> int:
    """How many jobs an array is."""
    return spec.array.count if spec.array else 1


def _going_on(spec: JobSpec, site: Site) -> list[tuple[str, str]]:
    way = spec.requeue.how
    own = scheduler_of(site.scheduler)
    if way is not None and own.starts_again:
        runs = f"{own.title}, which starts the same job again"
        return [("requeue.how", f"is {way}, but {site.name} runs {runs}: drop it")]
    if way == "chain" and spec.requeue.max and _members(spec) > 1:
        message = (
            "is chain, but array's members would have to wait for each other: write requeue.how: copy, "
            "with which each member goes on by itself, or drop one of the two"
        )
        return [("requeue.how", message)]
    return []


def _queue(spec: JobSpec, site: Site, kind: _Kind, walltime: int | None) -> list[tuple[str, str]]:
    field, name = kind.field, kind.name
    queue = kind.known.get(name)
    if queue is None:
        return _unknown(site, kind)
    source = f"({queue.source}, {queue.date})"
    if queue.submit_to:
        message = f"is {name!r}, which takes no jobs itself: write {field}: {queue.submit_to} {source}"
        return [(field, message)]
    found = []
    nodes = spec.nodes or 1
    if queue.ranges and not any(_fits(range_, nodes, walltime) for range_ in queue.ranges):
        asked = f"{nodes_words(nodes)}" + (f" for {clock(walltime)}" if walltime else "")
        taken = " or ".join(range_words(range_) for range_ in queue.ranges)
        which = f"is {name!r}, which" if kind.asked else f"is not set, and {name}, which is the default,"
        found.append(
            (
                field,
                f"{which} does not take {asked}; it takes {taken} {source}"
                f"{_others(kind.known, nodes, walltime, _members(spec))}",
            )
        )
    return [*found, *_job_limit(spec, site, kind, walltime)]


def _unknown(site: Site, kind: _Kind) -> list[tuple[str, str]]:
    hint = did_you_mean(kind.name, kind.known)
    if kind.others and not hint:
        return []
    if not kind.known:
        also = f", and set qos: {' or '.join(site.qos)}" if site.qos else ""
        return [
            (kind.field, f"is {kind.name!r}, but {site.name} chooses the {kind.field} itself: drop it{also}")
        ]
    hint += (
        f" (a {kind.field} that is missing here goes into a profile that extends this site)" if hint else ""
    )
    there = hint or f"; there are: {', '.join(kind.known)}"
    return [(kind.field, f"is {kind.name!r}, which {site.name} does not have{there}")]


def _job_limit(spec: JobSpec, site: Site, kind: _Kind, walltime: int | None) -> list[tuple[str, str]]:
    queue, name, found = kind.known[kind.name], kind.name, []
    source = f"({queue.source}, {queue.date})"
    array = spec.array if spec.array is not None and spec.array.count > 1 else None
    if array is not None and queue.max_jobs is not None and array.count > queue.max_jobs:
        jobs = "1 job" if queue.max_jobs == 1 else f"{queue.max_jobs} jobs"
        message = (
            f"is {array.count}, but {name} allows a user {jobs} queued or running {source}; "
            f"{_room_for_members(spec, kind, walltime)}"
        )
        found.append(("array.count", message))
    most = queue.array_at_most
    if array is not None and most is not None and min(array.at_most or array.count, array.count) > most:
        held = "is not set" if array.at_most is None else f"is {array.at_most}"
        message = (
            f"{held}, but of {array.count} members {name} takes {most} at a time {source}; "
            f"write at_most: {most} or less"
        )
        found.append(("array.at_most", message))
    further = not scheduler_of(site.scheduler).starts_again
    if further and queue.max_jobs is not None and spec.requeue.max and not found:
        found += _room_to_go_on(spec, queue.max_jobs, f"{name} allows a user", source)
    return found


def _room_to_go_on(spec: JobSpec, most: int, allows: str, source: str) -> list[tuple[str, str]]:
    """Going on takes further jobs there, while those that came before still run."""
    jobs = "1 job" if most == 1 else f"{most} jobs"
    limit = f"{allows} {jobs} queued or running {source}"
    if most == 1:
        fix = "use another queue, or drop requeue and start it again with castoff resubmit"
        copies = "a job submits its own copy while it still runs"
        why = "a chain is two jobs at least" if requeue_way(spec) == "chain" else copies
        return [("requeue", f"cannot work, because {why}, and {limit}; {fix}")]
    if requeue_way(spec) == "chain":
        if 1 + spec.requeue.max <= most:
            return []
        message = (
            f"is {spec.requeue.max}, which makes a chain of {1 + spec.requeue.max} jobs, but {limit}; "
            f"write requeue.max: {most - 1}, or requeue.how: copy, which takes two at a time"
        )
        return [("requeue.max", message)]
    members = _members(spec)
    at_once = min(spec.array.at_most or members, members) if spec.array else 1
    if members + at_once <= most:
        return []
    message = (
        f"cannot work, because each of {members} members may submit its own copy while it still runs, which "
        f"makes {members + at_once} jobs, and {limit}; "
        "lower array.count or array.at_most, or use another queue"
    )
    return [("requeue", message)]


def _fits(range_: Range, nodes: int, walltime: int | None) -> bool:
    if nodes < range_.min_nodes or (range_.max_nodes is not None and nodes > range_.max_nodes):
        return False
    if walltime is None:
        return True
    shortest = seconds(range_.min_walltime) if range_.min_walltime else 0
    longest = seconds(range_.max_walltime) if range_.max_walltime else walltime
    return shortest <= walltime <= longest


def _others(queues: dict[str, Queue], nodes: int, walltime: int | None, members: int) -> str:
    fitting = _taking(queues, nodes, walltime, members)
    return f"; what would: {', '.join(fitting)}" if fitting else ""


def _taking(queues: dict[str, Queue], nodes: int, walltime: int | None, members: int) -> list[str]:
    """The queues that take so many jobs of this size from one user."""
    return [
        name
        for name, queue in queues.items()
        if queue.submit_to is None
        and (not queue.ranges or any(_fits(range_, nodes, walltime) for range_ in queue.ranges))
        and (queue.max_jobs is None or members <= queue.max_jobs)
    ]


def _room_for_members(spec: JobSpec, kind: _Kind, walltime: int | None) -> str:
    """Where an array could go that one queue does not take."""
    nodes, members = spec.nodes or 1, _members(spec)
    asked = f"{members} members of {nodes_words(nodes)}" + (f" for {clock(walltime)}" if walltime else "")
    if fitting := _taking(kind.known, nodes, walltime, members):
        return f"{asked} are taken by {', '.join(fitting)}"
    rooms = {name: kind.known[name].max_jobs or 0 for name in _taking(kind.known, nodes, walltime, 1)}
    where = max(rooms, key=lambda name: rooms[name], default=None)
    most = f"; {where} takes the most, {rooms[where]}" if where is not None and rooms[where] > 1 else ""
    return f"no {kind.field} that the profile knows takes {asked}{most}: lower it, and send the rest later"
