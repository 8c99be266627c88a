"""A profile beside what the scheduler says of the machine: what differs, and how to mend it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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


_Found = Iterator[Difference | str]


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
    parts = _Parts(site, told, today)
    found = [
        *parts.queues("queues", site.queues, site.other_queues, told.queues),
        *(parts.queues("qos", site.qos, site.other_qos, told.qos) if told.qos is not None else ()),
        *parts.defaults(),
        *parts.array(),
        *parts.nodes(),
        *parts.filesystems(),
    ]
    wanted = {"qos": site.qos, "nodes": site.node}
    unanswered = [f"{about}: {why}" for about, why in told.unanswered if wanted.get(about)]
    not_compared = [one for one in found if isinstance(one, str)]
    differences = [one for one in found if not isinstance(one, str)]
    return Comparison(differences, [*not_compared, *unanswered, _UNTOLD])


class _Parts(NamedTuple):
    """Each part of a profile: what differs in it, and what could not be compared, with the reason."""

    site: Site
    told: Told
    today: str

    def queues(
        self, field: str, known: Mapping[str, Queue], others: bool, told: Mapping[str, ToldQueue]
    ) -> _Found:
        """The queues, or the QOS."""
        for name, queue in known.items():
            listed = told.get(queue.listed_as or name)
            if listed is None:
                none = f"there is no {queue.listed_as or name}"
                yield _difference(f"{field}.{name}", "there is one", queue, none, {field: {name: None}})
            elif queue.submit_to is None:
                yield from self._ranges(field, name, queue, listed, told)
                yield from self._numbers(field, name, queue, listed)
        listed_names = {queue.listed_as or name for name, queue in known.items()}
        beyond = [name for name, queue in told.items() if queue.offered and name not in listed_names]
        if beyond and others:
            yield f"{field} that the profile does not list: {', '.join(beyond)}"
        elif known:  # a site that lists none and takes none chooses it itself
            for name in beyond:
                words, mend = self._mended(field, name, told[name], _bounds_of(told[name], told))
                takes = f"there is {name}, for {words}"
                yield _difference(f"{field}.{name}", "there is none", None, takes, mend)

    def _ranges(
        self, field: str, name: str, queue: Queue, listed: ToldQueue, told: Mapping[str, ToldQueue]
    ) -> _Found:
        place = f"{field}.{name}.ranges"
        theirs = _bounds_of(listed, told)
        if not theirs:
            yield f"{place}: it routes to queues that the scheduler does not show"
            return
        unlike = set(_unlike([_as_bounds(range_) for range_ in queue.ranges] or [Bounds()], theirs))
        if self.told.submit_filter and unlike and all(part and said is None for part, said in unlike):
            names = " and no ".join(sorted(part for part, _ in unlike))
            why = f"its submit filter ({self.told.submit_filter}) may have one"
            yield f"{place}: the scheduler names no {names}, but {why}"
        elif unlike:
            words, mend = self._mended(field, name, listed, theirs)
            yield _difference(place, _words(queue.ranges), queue, words, mend)

    def _mended(
        self, field: str, name: str, listed: ToldQueue, bounds: list[Bounds]
    ) -> tuple[str, dict[str, Any]]:
        """What a queue takes, in words, and as the part of a profile that says so."""
        plain = [_plain(one) for one in bounds]
        part = {"ranges": plain if any(plain) else []}
        return _words([Range(**one) for one in plain]), {field: {name: self._fact(part, listed.source)}}

    def _numbers(self, field: str, name: str, queue: Queue, listed: ToldQueue) -> _Found:
        for part in ("max_jobs", "max_devices"):
            theirs = getattr(listed, part)
            mend = {field: {name: self._fact({part: theirs}, listed.source)}}
            yield from _number(f"{field}.{name}.{part}", getattr(queue, part), queue, theirs, mend)

    def defaults(self) -> _Found:
        """The queue of jobs that name none."""
        ours, theirs = self.site.default_queue, self.told.default_queue
        if ours is not None and theirs is not None and ours != theirs:
            yield _difference("default_queue", ours, None, theirs, {"default_queue": theirs})
        if self.site.default_qos is not None:
            yield "default_qos: it hangs on the user's account"

    def array(self) -> _Found:
        """The largest array."""
        ours, theirs = self.site.array, self.told.array_count
        mend = {"array": self._fact({"max_count": theirs}, self.told.array_source)}
        yield from _number("array.max_count", ours.max_count if ours else None, ours, theirs, mend)

    def nodes(self) -> _Found:
        """Whether there are nodes with the profile's cores and devices."""
        node = self.site.node
        if node is None or not node.sockets:
            return
        cores = sum(len(cpus(socket)) for socket in node.sockets)
        if self.told.nodes and not any(_alike(kind, cores, node.device_count) for kind in self.told.nodes):
            theirs = ", ".join(_kind_words(kind) for kind in self.told.nodes)
            yield _difference(
                "node", f"a node of {cores} cores and {node.device_count} devices", node, theirs, {}
            )

    def filesystems(self) -> _Found:
        """The file systems that the profile writes into jobs or proposes."""
        valid = self.told.filesystems
        for field, names, fact in _filesystems(self.site) if valid else []:
            wrong = [name for name in names if name not in valid]
            if wrong:
                yield _difference(field, ", ".join(wrong), fact, f"valid are {', '.join(valid)}", {})

    def _fact(self, part: dict[str, Any], source: str) -> dict[str, Any]:
        return {**part, "source": source, "date": self.today}


def _difference(field: str, ours: str, fact: Fact | None, theirs: str, mend: dict[str, Any]) -> Difference:
    source, date = (fact.source, fact.date) if fact else (None, None)
    return Difference(field, ours, source, date, theirs, mend)


def _number(
    field: str, ours: int | None, fact: Fact | None, theirs: int | None, mend: dict[str, Any]
) -> _Found:
    if theirs is None and ours is not None:
        yield f"{field}: the scheduler names none"
    elif theirs != ours:
        yield _difference(field, "nothing" if ours is None else str(ours), fact, str(theirs), mend)


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


def _lay_over(profile: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict):
            _lay_over(profile.setdefault(key, {}), value)
        else:
            profile[key] = value
