"""A profile beside what the scheduler says of the machine: what differs, and how to mend it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import yaml

from launcher.config.quantities import clock, cpus, seconds
from launcher.config.site import Fact, Queue, Range, Site, range_words
from launcher.schedulers.directives import of_scheduler
from launcher.schedulers.given_directives import place
from launcher.schedulers.machine import Bounds, NodeKind, Told, ToldQueue

_UNTOLD = "required fields, array_at_most, reserved cores, device_cores, setup and env: no scheduler tells"


class Difference(NamedTuple):
    """One thing that the profile and the scheduler say differently."""

    field: str
    profile: str
    """What the profile says, in words."""
    source: str | None
    """Where the profile has it from."""
    date: str | None
    scheduler: str
    """What the scheduler says, in words."""
    mend: dict[str, Any]
    """The part of a profile that would say the same; empty where only a person can tell."""


class Comparison(NamedTuple):
    """What came of comparing a profile with its scheduler."""

    differences: list[Difference]
    not_compared: list[str]
    """What could not be compared, and why."""

    def mended(self) -> dict[str, Any]:
        """The part of a profile that says what the scheduler says."""
        profile: dict[str, Any] = {}
        for difference in self.differences:
            _lay_over(profile, difference.mend)
        return profile


def compare(site: Site, told: Told, today: str) -> Comparison:
    """Compare a profile's limits with what its scheduler told; `today` dates what would mend it."""
    work = _Work(site, told, today)
    work.queues("queues", site.queues, site.other_queues, told.queues)
    if told.qos is not None:
        work.queues("qos", site.qos, site.other_qos, told.qos)
    work.defaults()
    work.array()
    work.node()
    work.filesystems()
    wanted = {"qos": site.qos, "nodes": site.node}
    unanswered = [f"{about}: {why}" for about, why in told.unanswered if wanted.get(about)]
    return Comparison(work.differences, [*work.not_compared, *unanswered, _UNTOLD])


class _Work:
    """Collects what differs and what could not be compared, one method for each part of a profile."""

    def __init__(self, site: Site, told: Told, today: str):
        self.site = site
        self.told = told
        self.today = today
        self.differences: list[Difference] = []
        self.not_compared: list[str] = []

    def queues(
        self, field: str, known: Mapping[str, Queue], others: bool, told: Mapping[str, ToldQueue]
    ) -> None:
        """The queues, or the QOS."""
        for name, queue in known.items():
            listed = told.get(queue.listed_as or name)
            if listed is None:
                none = f"there is no {queue.listed_as or name}"
                self._differs(f"{field}.{name}", "there is one", queue, none, {field: {name: None}})
            elif queue.submit_to is None:
                self._ranges(field, name, queue, listed, told)
                self._numbers(field, name, queue, listed)
        listed_names = {queue.listed_as or name for name, queue in known.items()}
        beyond = [name for name, queue in told.items() if queue.offered and name not in listed_names]
        if beyond and others:
            self.not_compared.append(f"{field} that the profile does not list: {', '.join(beyond)}")
        elif known:  # a site that lists none and takes none chooses it itself
            for name in beyond:
                ranges = [_as_range(bounds) for bounds in _bounds_of(told[name], told)]
                mend = self._fact({"ranges": _plain(ranges)}, told[name].source)
                takes = f"there is {name}, for {_words(ranges)}"
                self._differs(f"{field}.{name}", "there is none", None, takes, {field: {name: mend}})

    def _ranges(
        self, field: str, name: str, queue: Queue, listed: ToldQueue, told: Mapping[str, ToldQueue]
    ) -> None:
        place = f"{field}.{name}.ranges"
        theirs = _bounds_of(listed, told)
        if not theirs:
            self.not_compared.append(f"{place}: it routes to queues that the scheduler does not show")
            return
        ours = [_as_bounds(range_) for range_ in queue.ranges] or [Bounds(min_nodes=1)]
        unlike = set(_unlike(ours, theirs))
        unsaid = {part for part, said in unlike if _says_nothing(part, said)}
        if not self.told.submit_filter:
            unsaid = set()
        if unlike and all(part in unsaid for part, _ in unlike):
            names = " and no ".join(sorted(unsaid))
            why = f"its submit filter ({self.told.submit_filter}) may have one"
            self.not_compared.append(f"{place}: the scheduler names no {names}, but {why}")
        elif unlike:
            ranges = [_as_range(bounds) for bounds in theirs]
            mend = {field: {name: self._fact({"ranges": _plain(ranges)}, listed.source)}}
            self._differs(place, _words(queue.ranges), queue, _words(ranges), mend)

    def _numbers(self, field: str, name: str, queue: Queue, listed: ToldQueue) -> None:
        for part, ours, theirs in (
            ("max_jobs", queue.max_jobs, listed.max_jobs),
            ("max_devices", queue.max_devices, listed.max_devices),
        ):
            place = f"{field}.{name}.{part}"
            if theirs is None and ours is not None:
                self.not_compared.append(f"{place}: the scheduler names none")
            elif theirs != ours:
                mend = {field: {name: self._fact({part: theirs}, listed.source)}}
                self._differs(place, "nothing" if ours is None else str(ours), queue, str(theirs), mend)

    def defaults(self) -> None:
        """The queue of jobs that name none."""
        ours, theirs = self.site.default_queue, self.told.default_queue
        if ours is not None and theirs is not None and ours != theirs:
            self._differs("default_queue", ours, None, theirs, {"default_queue": theirs})
        if self.site.default_qos is not None:
            self.not_compared.append("default_qos: it hangs on the user's account")

    def array(self) -> None:
        """The largest array."""
        ours, theirs = self.site.array, self.told.array_count
        if theirs is None and ours is not None:
            self.not_compared.append("array.max_count: the scheduler names none")
        elif theirs is not None and (ours is None or ours.max_count != theirs):
            mend = {"array": self._fact({"max_count": theirs}, self.told.array_source)}
            said = "nothing" if ours is None else str(ours.max_count)
            self._differs("array.max_count", said, ours, str(theirs), mend)

    def node(self) -> None:
        """Whether there are nodes with the profile's cores and devices."""
        node = self.site.node
        if node is None or not node.sockets:
            return
        cores = sum(len(cpus(socket)) for socket in node.sockets)
        if self.told.nodes and not any(_alike(kind, cores, node.device_count) for kind in self.told.nodes):
            theirs = ", ".join(_kind_words(kind) for kind in self.told.nodes)
            said = f"a node of {cores} cores and {node.device_count} devices"
            self._differs("node", said, node, theirs, {})

    def filesystems(self) -> None:
        """The file systems that the profile writes into jobs or proposes."""
        valid = self.told.filesystems
        for field, names, fact in _filesystems(self.site) if valid else []:
            wrong = [name for name in names if name not in valid]
            if wrong:
                self._differs(field, ", ".join(wrong), fact, f"valid are {', '.join(valid)}", {})

    def _differs(self, field: str, ours: str, fact: Fact | None, theirs: str, mend: dict[str, Any]) -> None:
        source, date = (fact.source, fact.date) if fact else (None, None)
        self.differences.append(Difference(field, ours, source, date, theirs, mend))

    def _fact(self, part: dict[str, Any], source: str) -> dict[str, Any]:
        return {**part, "source": source, "date": self.today}


def _bounds_of(listed: ToldQueue, told: Mapping[str, ToldQueue]) -> list[Bounds]:
    """What a queue takes; a routing one takes what those take that it hands its jobs to."""
    reached = [told[name] for name in listed.routes_to if name in told] if listed.routes_to else [listed]
    # A minimum of one node is none.
    every = [queue.bounds._replace(min_nodes=max(queue.bounds.min_nodes or 1, 1)) for queue in reached]
    return list(dict.fromkeys(every))


def _unlike(ours: list[Bounds], theirs: list[Bounds]) -> Iterator[tuple[str, int | None]]:
    """The bounds that are not the same, each with what the scheduler says; "" stands for all of them.

    Where one side has one range and the other several, their outermost bounds are compared.
    """
    if len(ours) != len(theirs):
        if 1 not in (len(ours), len(theirs)):
            yield "", 0
            return
        ours, theirs = [_outermost(ours)], [_outermost(theirs)]
    for own, their in zip(sorted(ours, key=_order), sorted(theirs, key=_order), strict=True):
        for part, mine, said in zip(Bounds._fields, own, their, strict=True):
            if mine != said:
                yield part, said


def _says_nothing(part: str, said: int | None) -> bool:
    return said is None or (part == "min_nodes" and said == 1)


def _order(bounds: Bounds) -> list[int]:
    return [-1 if part is None else part for part in bounds]


def _outermost(several: list[Bounds]) -> Bounds:
    def least(parts: list[int | None]) -> int | None:
        return None if None in parts else min(part for part in parts if part is not None)

    def most(parts: list[int | None]) -> int | None:
        return None if None in parts else max(part for part in parts if part is not None)

    return Bounds(
        least([one.min_nodes for one in several]),
        most([one.max_nodes for one in several]),
        least([one.min_walltime for one in several]),
        most([one.max_walltime for one in several]),
    )


def _as_bounds(range_: Range) -> Bounds:
    shortest, longest = range_.min_walltime, range_.max_walltime
    return Bounds(
        range_.min_nodes,
        range_.max_nodes,
        seconds(shortest) if shortest else None,
        seconds(longest) if longest else None,
    )


def _as_range(bounds: Bounds) -> Range:
    shortest, longest = bounds.min_walltime, bounds.max_walltime
    return Range(
        bounds.min_nodes or 1,
        bounds.max_nodes,
        None if shortest is None else clock(shortest),
        None if longest is None else clock(longest),
    )


def _plain(ranges: list[Range]) -> list[dict[str, Any]]:
    """Ranges as a profile holds them, without what says nothing."""
    unlimited = msgspec.structs.asdict(Range())
    plain = [
        {name: held for name, held in msgspec.structs.asdict(range_).items() if held != unlimited[name]}
        for range_ in ranges
    ]
    return [] if plain == [{}] else plain


def _words(ranges: list[Range]) -> str:
    return " or ".join(range_words(range_) for range_ in ranges) or "any number of nodes"


def _alike(kind: NodeKind, cores: int, devices: int) -> bool:
    """Whether such a node is the profile's.

    What PBS counts as a CPU may be a hardware thread, and its device may be several of ours.
    """
    if kind.cores is not None:
        return (kind.cores, kind.devices) == (cores, devices)
    threads = [cores * each for each in (1, 2, 4)]
    return kind.cpus in threads and (not kind.devices or devices % kind.devices == 0)


def _kind_words(kind: NodeKind) -> str:
    held = f"{kind.cores} cores" if kind.cores is not None else f"{kind.cpus} CPUs"
    return f"{kind.number} of {held} and {kind.devices} devices"


def _filesystems(site: Site) -> Iterator[tuple[str, list[str], Fact | None]]:
    """Each place of the profile that names file systems of PBS's resource `filesystems`."""
    for outer, directives in (("", site.directives), ("defaults.", site.defaults.directives)):
        if isinstance(names := of_scheduler(directives, site.scheduler).get("filesystems"), str):
            field = place("directives.filesystems", directives, site.scheduler)
            yield outer + field, names.split(":"), None
    if known := site.directive_values.get("filesystems"):
        yield "directive_values.filesystems.among", known.among, known
    for number, required in enumerate(site.required):
        if required.field == "directives.filesystems":
            example = yaml.safe_load(required.example)
            names = str(of_scheduler(example["directives"], site.scheduler)["filesystems"])
            yield f"required.{number}.example", names.split(":"), required


def _lay_over(profile: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(profile.get(key), dict):
            _lay_over(profile[key], value)
        else:
            profile[key] = dict(value) if isinstance(value, dict) else value
