"""Limits of a site's profile, checked before submission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import clock, seconds, size
from castoff.launcher.config.site import Site, range_words
from castoff.launcher.config.site_fields import Node, OtherNodes, Queue
from castoff.launcher.errors import shown
from castoff.launcher.schedulers.base import QueuedScheduler, Scheduler
from castoff.launcher.schedulers.fields import refused_of_job
from castoff.launcher.schedulers.table import bound_problems
from castoff.launcher.text.words import counted
from castoff.launcher.typed.suggestion import did_you_mean, setting

_Found: TypeAlias = Iterator[tuple[str, str]]
"""Pairs of a field and what is wrong with it."""


def site_problems(
    spec: JobSpec, site: Site, scheduler: Scheduler, name: str, walltime: int | None, grace: int
) -> list[tuple[str, str]]:
    """Yield every reason why this site would refuse the job, or the job could not work there."""
    found = [
        *_stopping(site, scheduler, walltime, grace),
        *_required(spec, site),
        *_names(scheduler, name),
        *_others(spec, site, scheduler),
    ]
    for target in targets(spec, site, scheduler):
        known = {field for field, _ in found}
        of_target = _queue(spec, site, scheduler, target, walltime)
        found += [(field, message) for field, message in of_target if field not in known]
    return found


class Target(msgspec.Struct, frozen=True):
    """The queue or the QOS that a job goes to."""

    field: Literal["queue", "qos"]
    name: str
    known: dict[str, Queue]
    others: bool
    """Whether the site may have queues (or QOSes) that its profile does not list."""
    asked: bool
    """Whether the job names the queue or QOS; otherwise it is the default for jobs that name none."""

    @property
    def max_devices(self) -> int:
        """The most devices of one node that a job may have in the queue or QOS if jobs share nodes there;
        otherwise 0.
        """
        return self.known[self.name].most_devices if self.name in self.known else 0

    @property
    def exclusive(self) -> bool:
        """Whether jobs in the queue or QOS get whole nodes."""
        return self.name in self.known and self.known[self.name].exclusive

    @property
    def counts_devices(self) -> bool:
        """Whether PBS's `select` counts devices in this queue, rather than nodes."""
        return self.name in self.known and self.known[self.name].select_counts == "devices"

    @property
    def of_whole_nodes(self) -> str | None:
        """The name of another queue or QOS that gives jobs whole nodes; None: there is none."""
        offered = (name for name, one in self.known.items() if one.exclusive and not one.by_request)
        return next(offered, None)


def targets(spec: JobSpec, site: Site, scheduler: Scheduler) -> Iterator[Target]:
    """Return the queue and the QOS whose limits apply to the job."""
    queue, qos = spec.queue or site.default_queue, spec.qos or site.default_qos
    if queue is not None and scheduler.has_queue:
        yield Target("queue", queue, site.queues, site.other_queues, asked=spec.queue is not None)
    if qos is not None and "qos" in scheduler.handles:
        yield Target("qos", qos, site.qos, site.other_qos, asked=spec.qos is not None)


def chosen_queue(spec: JobSpec, site: Site, scheduler: Scheduler, walltime: int | None) -> str | None:
    """Return the queue that castoff requests for a job that names none; None: castoff requests no queue."""
    if spec.queue is not None or not scheduler.has_queue:
        return None
    offered = ((name, site.queues[name]) for name in site.queue_choice)
    fitting = (name for name, one in offered if not (spec.exclusive and one.most_devices))
    return next((name for name in fitting if _takes(site.queues[name], _nodes(spec), walltime)), None)


def _stopping(site: Site, scheduler: Scheduler, walltime: int | None, grace: int) -> _Found:
    longest = scheduler.longest_grace
    if walltime == 0:
        yield "walltime", "is zero; give the job some time, as in 30m"
    elif walltime is not None and grace >= walltime:
        left = f"is {grace} s, which leaves nothing of the walltime of {walltime} s"
        lower = setting("grace", f"{walltime // 10}s")
        yield "grace", f"{left}: lower grace, as in {lower}, or raise walltime"
    elif longest and walltime is not None and grace > longest:
        yield "grace", f"is {grace} s, but {site.scheduler} takes {longest} s at the most: lower it"


def _required(spec: JobSpec, site: Site) -> _Found:
    of_site, of_job = (of_scheduler(given, site.scheduler) for given in (site.directives, spec.directives))
    for required in site.required:
        field, _, key = required.field.partition(".")
        held = {**of_site, **of_job}.get(key) if key else getattr(spec, field)
        if held is None or held is False:
            why = f"is missing, and {site.name} needs it: {required.because.rstrip('.')}"
            yield required.field, f"{why}; give it, as in `{required.example}` {required.cited}"


def _names(scheduler: Scheduler, name: str) -> _Found:
    if problem := scheduler.name_problem(name):
        yield "name", problem
    elif "/" in name or name in (".", ".."):
        yield "name", f"is {shown(name)}, but names log files and folders: it cannot hold /"
    elif len(name.encode()) > 200:
        yield "name", f"is {len(name.encode())} bytes long, but names log files: 200 at the most"


def _nodes(spec: JobSpec) -> int:
    """Return the number of nodes that the job requests, including spare nodes."""
    return (spec.nodes or 1) + (spec.restart.spare_nodes or 0)


def _members(spec: JobSpec) -> int:
    """Return the number of scheduler jobs that the job's array becomes."""
    return spec.array.size if spec.array else 1


def _others(spec: JobSpec, site: Site, own: Scheduler) -> _Found:
    limit, node = site.array, site.node if own.has_queue else None
    array, way = spec.array, spec.requeue.how
    of_queue = (one for one in site.other_nodes or [] if spec.queue in one.queues)
    held: Node | OtherNodes | None = next(of_queue, node)
    if node and held and held.memory and spec.memory and size(spec.memory) > size(held.memory):
        there = f"a node has {held.memory} ({site.name}: {held.cited[1:-1]})"
        yield "memory", f"is {spec.memory}, but {there}: lower it, or use more nodes"
    if limit and array and array.size > limit.max_count and not own.splits_arrays:
        taken = f"{site.name} takes {limit.max_count} at the most {limit.cited}"
        fix = "split it, or raise array.max_count in a profile of your site"
        yield array.field, f"is {array.size_words}, but {taken}; {fix}"
    several = array is not None and (array.size > 1 or array.own_indices is not None)
    if way == "chain" and not own.requeues_in_place and spec.requeue.max and several:
        copy = setting("requeue.how", "copy")
        fix = f"use {copy}, with which each member resumes by itself, or drop one of the two"
        yield "requeue.how", f"is chain, but array's members would have to wait for each other: {fix}"
    yield from refused_of_job(spec, site, own)
    if own.dialect:
        yield from bound_problems(own.dialect.fields, spec, own.title)


def _queue(spec: JobSpec, site: Site, scheduler: Scheduler, target: Target, walltime: int | None) -> _Found:
    field, name = target.field, target.name
    if (queue := target.known.get(name)) is None:
        several = name.split(",")  # Slurm uses the first queue that has room
        missing = [one for one in several if one not in target.known]
        if missing:
            yield from _unknown(site, msgspec.structs.replace(target, name=missing[0] or name))
        elif not any(_takes(target.known[one], _nodes(spec), walltime) for one in several):
            taken = f"none of which takes {_asked(_nodes(spec), walltime)}"
            yield field, f"is {name!r}, {taken}; castoff sites {site.name} shows what each takes"
        return
    if queue.submit_to:
        fix = f"use {setting(field, queue.submit_to)} {queue.cited}"
        yield field, f"is {name!r}, which takes no jobs itself: {fix}"
        return
    nodes = _nodes(spec)
    if not _takes(queue, nodes, walltime):
        fitting = _taking(target.known, nodes, walltime, _members(spec))
        others = f"; what would: {', '.join(fitting)}" if fitting else ""
        asked = _asked(nodes, walltime)
        if field == "queue" and site.queue_choice and not target.asked:
            choice = (f"{one} takes {_taken(site.queues[one])}" for one in site.queue_choice)
            yield field, f"is not set, and none takes {asked}: {'; '.join(choice)} {queue.cited}{others}"
        else:
            which = (
                f"is {name!r}, which" if target.asked else f"is not set, and {name}, which is the default,"
            )
            yield field, f"{which} does not take {asked}; it takes {_taken(queue)} {queue.cited}{others}"
    yield from _job_limit(spec, scheduler, target, walltime)


def _unknown(site: Site, target: Target) -> _Found:
    hint = did_you_mean(target.name, target.known)
    if target.others and not hint:
        return
    if not target.known:
        meant = target.name if target.name in site.qos else next(iter(site.qos), None)
        also = f", and choose a QOS ({', '.join(site.qos)}), as in {setting('qos', meant)}" if meant else ""
        yield (
            target.field,
            f"is {target.name!r}, but {site.name} chooses the {target.field} itself: drop it{also}",
        )
        return
    there = hint or f"; there are: {', '.join(target.known)}"
    missing = f"a {target.field} that is missing here goes into a profile that extends this site"
    if not target.others:
        missing = f"on its machine, castoff sites check {site.name} --update adds a new {target.field}"
    yield target.field, f"is {target.name!r}, which {site.name} does not have{there} ({missing})"


def _job_limit(spec: JobSpec, scheduler: Scheduler, target: Target, walltime: int | None) -> _Found:
    queue, name = target.known[target.name], target.name
    further = spec.requeue.max and not scheduler.requeues_in_place
    jobs = "1 job" if queue.max_jobs == 1 else f"{queue.max_jobs} jobs"
    allows = f"{name} allows a user {jobs} queued or running {queue.cited}"
    array = spec.array if _members(spec) > 1 else None
    if array and queue.max_jobs and array.size > queue.max_jobs:
        further = False
        asked = f"{array.size} members of {_asked(_nodes(spec), walltime)}"
        fitting = _taking(target.known, _nodes(spec), walltime, array.size)
        taken = (
            f"{asked} are taken by {', '.join(fitting)}" if fitting else f"no {target.field} takes {asked}"
        )
        fix = "" if fitting else ": lower it, and send the rest later"
        yield array.field, f"is {array.size_words}, but {allows}; {taken}{fix}"
    most = queue.array_max_concurrent
    if array and most and min(array.max_concurrent or array.size, array.size) > most:
        further = False
        held = "is not set" if array.max_concurrent is None else f"is {array.max_concurrent}"
        taken = f"of {array.size} members {name} takes {most} at a time {queue.cited}"
        most_words = setting("array.max_concurrent", str(most))
        yield "array.max_concurrent", f"{held}, but {taken}; use {most_words} or less"
    if further and queue.max_jobs is not None:
        yield from _room_to_resume(spec, queue.max_jobs, allows)


def _room_to_resume(spec: JobSpec, most: int, limit: str) -> _Found:
    """Check that the queue accepts the jobs that resume this job while earlier jobs still run."""
    chain = spec.requeue.how == "chain"
    jobs = 1 + (spec.requeue.max or 0)
    members = _members(spec)
    at_once = min(spec.array.max_concurrent or members, members) if spec.array else 1
    if most == 1:
        fix = "use another queue, or drop requeue and restart it with castoff resubmit"
        copies = "a job submits a copy of itself while it is still running"
        why = "a chain is two jobs at least" if chain else copies
        yield "requeue", f"cannot work, because {why}, and {limit}; {fix}"
    elif chain and jobs > most:
        fewer, copy = setting("requeue.max", str(most - 1)), setting("requeue.how", "copy")
        fix = f"use {fewer}, or {copy}, which takes two at a time"
        yield "requeue.max", f"is {spec.requeue.max}, which makes a chain of {jobs} jobs, but {limit}; {fix}"
    elif not chain and members + at_once > most:
        why = f"each of {members} members may submit a copy of itself while it is still running"
        field = spec.array.field if spec.array else "array.count"
        fix = f"lower {field} or array.max_concurrent, or use another queue"
        makes = f"which makes {members + at_once} jobs"
        yield "requeue", f"cannot work, because {why}, {makes}, and {limit}; {fix}"


def notes(spec: JobSpec, site: Site, scheduler: Scheduler) -> Iterator[str]:
    """Yield notes on a queue that the profile does not list, and on an array that is too large for
    one job.
    """
    for target in targets(spec, site, scheduler):
        if (
            target.asked
            and target.others
            and target.known
            and not target.known.keys() >= {*target.name.split(",")}
        ):
            yield f"{target.field} {target.name}: its limits are not checked, as {site.name} does not list it"
    array = spec.array if spec.array and spec.array.own_indices else None
    if array and (tasks := scheduler.tasks(array.members)) != array.members:
        numbered = f"{tasks[0]} to {tasks[-1]}, since {scheduler.renumbers_arrays}"
        yield f"array: to {scheduler.title} its members {array.own_indices} are {numbered}"
    if isinstance(scheduler, QueuedScheduler) and scheduler.splits_arrays and site.array and spec.array:
        largest, most = spec.array.members[-1], site.array.max_count
        if spec.array.own_indices and largest >= most:
            alone = f"{scheduler.submit_command[0]} alone takes none above {most - 1}"
            yield f"array indices up to {largest}: castoff submit sends it in parts; {alone}"
        elif largest >= most:
            alone = f"{scheduler.submit_command[0]} alone takes {most} members at the most"
            yield f"array of {largest + 1}: castoff submit sends it in parts; {alone}"


def _taken(queue: Queue) -> str:
    counted = f", and {queue.devices_words} of its devices" if queue.select_counts == "devices" else ""
    return " or ".join(range_words(range_) for range_ in queue.ranges) + counted


def _takes(queue: Queue, nodes: int, walltime: int | None) -> bool:
    return not queue.ranges or any(
        range_.min_nodes <= nodes <= (range_.max_nodes or nodes)
        and (walltime is None or seconds(range_.min_walltime or "0s") <= walltime)
        and (not (walltime and range_.max_walltime) or walltime <= seconds(range_.max_walltime))
        for range_ in queue.ranges
    )


def _taking(queues: dict[str, Queue], nodes: int, walltime: int | None, members: int) -> list[str]:
    """Return the queues that accept this number of jobs of this size from one user."""
    return [
        name
        for name, queue in queues.items()
        if queue.submit_to is None
        and not queue.by_request
        and _takes(queue, nodes, walltime)
        and (queue.max_jobs is None or members <= queue.max_jobs)
    ]


def _asked(nodes: int, walltime: int | None) -> str:
    return counted(nodes, "node") + (f" for {clock(walltime)}" if walltime else "")
