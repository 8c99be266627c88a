"""A profile beside what the scheduler says of the machine: what differs, and how to mend it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from launcher.config.quantities import clock, cpus, seconds
from launcher.config.site import Fact, Queue, Range, Site, range_words
from launcher.schedulers.directives import of_scheduler, place
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


class Comparison:
    """A profile's limits beside what its scheduler told; `today` dates what would mend it."""

    def __init__(self, site: Site, told: Told, today: str):
        self._site, self._told, self._today = site, told, today
        self.differences: list[Difference] = []
        self.not_compared: list[str] = []
        """What could not be compared, and why."""
        self._queues("queues", site.queues, site.other_queues, told.queues)
        if told.qos is not None:
            self._queues("qos", site.qos, site.other_qos, told.qos)
        ours, theirs = site.default_queue, told.default_queue
        if ours is not None and theirs is not None and ours != theirs:
            self._differs("default_queue", ours, None, theirs, {"default_queue": theirs})
        if site.default_qos is not None:
            self.not_compared.append("default_qos: it hangs on the user's account")
        self._number(("array",), "max_count", site.array, told.array_count, told.array_source)
        self._nodes()
        for field, names, fact in _filesystems(site) if told.filesystems else []:
            if wrong := [name for name in names if name not in told.filesystems]:
                self._differs(field, ", ".join(wrong), fact, f"valid are {', '.join(told.filesystems)}")
        wanted = {"qos": site.qos, "nodes": site.node}
        self.not_compared += [f"{about}: {why}" for about, why in told.unanswered if wanted.get(about)]
        self.not_compared.append(_UNTOLD)

    def mended(self) -> dict[str, Any]:
        """The part of a profile that says what the scheduler says."""
        profile: dict[str, Any] = {}
        for difference in self.differences:
            _lay_over(profile, difference.mend)
        return profile

    def _differs(
        self, field: str, ours: str, fact: Fact | None, theirs: str, mend: dict[str, Any] | None = None
    ) -> None:
        source, date = (fact.source, fact.date) if fact else (None, None)
        self.differences.append(Difference(field, ours, source, date, theirs, mend or {}))

    def _mend(self, place: Sequence[str], part: dict[str, Any], source: str) -> dict[str, Any]:
        mend = {**part, "source": source, "date": self._today}
        for name in reversed(place):
            mend = {name: mend}
        return mend

    def _queues(
        self, field: str, known: Mapping[str, Queue], others: bool, told: Mapping[str, ToldQueue]
    ) -> None:
        for name, queue in known.items():
            listed = told.get(queue.listed_as or name)
            if listed is None:
                none = f"there is no {queue.listed_as or name}"
                self._differs(f"{field}.{name}", "there is one", queue, none, {field: {name: None}})
            elif queue.submit_to is None:
                self._ranges(field, name, queue, listed, _bounds_of(listed, told))
                for part in ("max_jobs", "max_devices"):
                    self._number((field, name), part, queue, getattr(listed, part), listed.source)
        listed_names = {queue.listed_as or name for name, queue in known.items()}
        beyond = [name for name, queue in told.items() if queue.offered and name not in listed_names]
        if beyond and others:
            self.not_compared.append(f"{field} that the profile does not list: {', '.join(beyond)}")
        elif known:  # a site that lists none and takes none chooses it itself
            for name in beyond:
                self._ranges(field, name, None, told[name], _bounds_of(told[name], told))

    def _ranges(
        self, field: str, name: str, queue: Queue | None, listed: ToldQueue, theirs: list[Bounds]
    ) -> None:
        """What a queue takes; `queue`: the profile's, if it has it."""
        plain = [_plain(one) for one in theirs]
        mend = self._mend((field, name), {"ranges": plain if any(plain) else []}, listed.source)
        words, place = _words([Range(**one) for one in plain]), f"{field}.{name}.ranges"
        if queue is None:
            takes = f"there is {name}, for {words}"
            self._differs(f"{field}.{name}", "there is none", None, takes, mend)
            return
        if not theirs:
            self.not_compared.append(f"{place}: it routes to queues that the scheduler does not show")
            return
        unlike = set(_unlike([_as_bounds(range_) for range_ in queue.ranges] or [Bounds()], theirs))
        if self._told.submit_filter and unlike and all(part and said is None for part, said in unlike):
            names = " and no ".join(sorted(part for part, _ in unlike))
            why = f"its submit filter ({self._told.submit_filter}) may have one"
            self.not_compared.append(f"{place}: the scheduler names no {names}, but {why}")
        elif unlike:
            self._differs(place, _words(queue.ranges), queue, words, mend)

    def _number(
        self, place: Sequence[str], part: str, fact: Fact | None, theirs: int | None, source: str
    ) -> None:
        ours, field = getattr(fact, part, None), ".".join([*place, part])
        if theirs is None and ours is not None:
            self.not_compared.append(f"{field}: the scheduler names none")
        elif theirs != ours:
            mend = self._mend(place, {part: theirs}, source)
            self._differs(field, "nothing" if ours is None else str(ours), fact, str(theirs), mend)

    def _nodes(self) -> None:
        """Whether there are nodes with the profile's cores and devices."""
        node = self._site.node
        if node is None or not node.sockets:
            return
        cores = sum(len(cpus(socket)) for socket in node.sockets)
        if self._told.nodes and not any(_alike(kind, cores, node.device_count) for kind in self._told.nodes):
            theirs = ", ".join(_kind_words(kind) for kind in self._told.nodes)
            self._differs("node", f"a node of {cores} cores and {node.device_count} devices", node, theirs)


def _lay_over(profile: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict):
            _lay_over(profile.setdefault(key, {}), value)
        else:
            profile[key] = value


def _bounds_of(listed: ToldQueue, told: Mapping[str, ToldQueue]) -> list[Bounds]:
    """What a queue takes; a routing one takes what those take that it hands its jobs to."""
    reached = [told[name] for name in listed.routes_to if name in told] if listed.routes_to else [listed]
    return list(dict.fromkeys(_plainly(queue.bounds) for queue in reached))


def _plainly(bounds: Bounds) -> Bounds:
    """The same, where a minimum of one node is none."""
    return bounds._replace(min_nodes=None) if (bounds.min_nodes or 0) <= 1 else bounds


def _unlike(ours: list[Bounds], theirs: list[Bounds]) -> Iterator[tuple[str, int | None]]:
    """The bounds that are not the same, each with what the scheduler says; "" stands for all of them.

    Where one side has one range and the other several, their outermost bounds are compared.
    """
    if len(ours) != len(theirs):
        if 1 not in (len(ours), len(theirs)):
            yield "", 0
            return
        ours, theirs = [_outermost(ours)], [_outermost(theirs)]
    ordered = (sorted(some, key=lambda one: [part or -1 for part in one]) for some in (ours, theirs))
    for pair in zip(*ordered, strict=True):
        for part, mine, said in zip(Bounds._fields, *pair, strict=True):
            if mine != said:
                yield part, said


def _outermost(several: list[Bounds]) -> Bounds:
    def most(choose: Callable[[Iterable[int]], int], parts: tuple[int | None, ...]) -> int | None:
        return None if None in parts else choose(part for part in parts if part is not None)

    return Bounds(*map(most, (min, max, min, max), zip(*several, strict=True)))


def _as_bounds(range_: Range) -> Bounds:
    times = (seconds(time) if time else None for time in (range_.min_walltime, range_.max_walltime))
    return _plainly(Bounds(range_.min_nodes, range_.max_nodes, *times))


def _plain(bounds: Bounds) -> dict[str, Any]:
    """A range as a profile holds it, without what says nothing."""
    said = {part: held for part, held in bounds._asdict().items() if held is not None}
    return {part: clock(held) if part.endswith("walltime") else held for part, held in said.items()}


def _words(ranges: list[Range]) -> str:
    return " or ".join(map(range_words, ranges)) or "any number of nodes"


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
