"""A profile beside what the scheduler says of the machine: what differs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from launcher.config.quantities import clock, cpus, seconds
from launcher.config.site import Site
from launcher.config.site_fields import Fact, Queue, Range
from launcher.schedulers.machine_info import MachineInfo, QueueInfo, outermost

_NOT_REPORTED = (
    "required fields, array_max_concurrent, reserved cores, device_cores, setup and env: no "
    "scheduler reports them"
)


class Difference(NamedTuple):
    """One thing that the profile and the scheduler say differently, in words."""

    field: str
    profile: str
    source: str | None
    """Where the profile has it from."""
    date: str | None
    scheduler: str


class Comparison:
    """A profile's limits beside what its scheduler reports."""

    def __init__(self, site: Site, reported: MachineInfo):
        self.differences: list[Difference] = []
        self.not_compared: list[str] = []
        """What could not be compared, and why."""
        self._queues("queues", site.queues, site.other_queues, reported.queues)
        if reported.qos is not None:
            self._queues("qos", site.qos, site.other_qos, reported.qos)
        if site.default_queue is not None:
            self._compare("default_queue", site.default_queue, reported.default_queue)
        if site.default_qos is not None:
            self.not_compared.append("default_qos: it hangs on the user's account")
        self._compare(
            "array.max_count", site.array and site.array.max_count, reported.array_count, site.array
        )
        self._nodes(site, reported)
        wanted = {"qos": site.qos, "nodes": site.node}
        self.not_compared += [f"{about}: {why}" for about, why in reported.unanswered if wanted.get(about)]
        self.not_compared.append(_NOT_REPORTED)

    def _compare(
        self, field: str, ours: Any, theirs: Any, fact: Fact | None = None, words: Callable[[Any], str] = str
    ) -> None:
        if ours == theirs:
            return
        if theirs is None:
            self.not_compared.append(f"{field}: {words(ours)}, which the scheduler does not report")
        else:
            self._differs(field, "nothing" if ours is None else words(ours), words(theirs), fact)

    def _differs(self, field: str, ours: str, theirs: str, fact: Fact | None = None) -> None:
        source, date = (fact.source, fact.date) if fact else (None, None)
        self.differences.append(Difference(field, ours, source, date, theirs))

    def _queues(
        self, field: str, known: Mapping[str, Queue], others: bool, reported: Mapping[str, QueueInfo]
    ) -> None:
        for name, queue in known.items():
            listed = reported.get(queue.listed_as or name)
            if listed is None:
                self._differs(f"{field}.{name}", "listed", "not listed", queue)
            elif queue.submit_to is None:
                for part, ours in _limits(queue).items():
                    words = clock if part.endswith("walltime") else str
                    self._compare(f"{field}.{name}.{part}", ours, getattr(listed, part), queue, words)
        listed_names = {queue.listed_as or name for name, queue in known.items()}
        beyond = [name for name, queue in reported.items() if queue.offered and name not in listed_names]
        if beyond and others:
            self.not_compared.append(f"{field} that the profile does not list: {', '.join(beyond)}")
        elif known:  # a site that lists none and takes none chooses it itself
            for name in beyond:
                self._differs(f"{field}.{name}", "not listed", "listed")

    def _nodes(self, site: Site, reported: MachineInfo) -> None:
        """Whether there are nodes with the profile's cores and devices."""
        if site.node is None or not site.node.sockets or not reported.nodes:
            return
        cores, devices = sum(len(cpus(socket)) for socket in site.node.sockets), site.node.device_count
        per_core = (1, 2, 4) if reported.counts_threads else (1,)
        for theirs, of_them in reported.nodes:
            alike = of_them == devices or (
                reported.counts_threads and (not of_them or devices % of_them == 0)
            )
            if alike and theirs in (cores * each for each in per_core):
                return
        words = [f"{theirs} cores and {of_them} devices" for theirs, of_them in reported.nodes]
        self._differs("node", f"{cores} cores and {devices} devices", " or ".join(words), site.node)


def _limits(queue: Queue) -> dict[str, int | None]:
    """A queue's as `QueueInfo` has them: of several ranges their outermost bounds."""

    def bound(choose: Callable[..., int], part: str) -> int | None:
        held = [getattr(one, part) for one in queue.ranges or [Range()]]
        return outermost(choose, [seconds(one) if isinstance(one, str) else one for one in held])

    choices = {"min_nodes": min, "max_nodes": max, "min_walltime": min, "max_walltime": max}
    bounds = {part: bound(choose, part) for part, choose in choices.items()}
    return {**bounds, "max_jobs": queue.max_jobs, "max_devices": queue.max_devices}
