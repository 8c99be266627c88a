"""What is wrong with a profile: each field is right alone, but not with the others, or not in a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from launcher.config.job import JobSpec
from launcher.config.job_checks import variable_problem
from launcher.config.quantities import cpus, descending, seconds
from launcher.typed.document import FieldPath
from launcher.typed.structure import fields_of
from launcher.typed.suggestion import did_you_mean

if TYPE_CHECKING:
    from launcher.config.site import Node, Queue, Site


def contradictions(site: Site) -> Iterator[tuple[FieldPath, str]]:
    """What cannot be so: each field is right alone, but not with the others, or not in a script."""
    variables: list[tuple[str, ...]] = [("env", name) for name in site.env]
    variables += [("options", of, "env", name) for of, option in site.options.items() for name in option.env]
    for path in variables:
        if problem := variable_problem(path[-1]):
            yield path, problem
    descend = [*_descending(site)]
    yield from descend
    if site.node is not None and not descend:
        yield from _of_node(site.node)
        yield from _of_reserved(site, site.node)
    yield from _of_queues("queue", "queues", site.queues, site.default_queue, site.other_queues)
    yield from _of_queues("QOS", "qos", site.qos, site.default_qos, site.other_qos)
    fields = fields_of(JobSpec)
    for number, required in enumerate(site.required):
        if required.field not in fields and not required.field.startswith("directives."):
            allowed = f"a job file's field, or directives.NAME{did_you_mean(required.field, fields)}"
            yield ("required", number, "field"), f"is {required.field!r}, but takes {allowed}"


def _of_queues(
    word: str, field: str, queues: dict[str, Queue], default: str | None, others: bool
) -> Iterator[tuple[FieldPath, str]]:
    """Contradictions within the queues, or within the QOS."""
    if default is not None and default not in queues and not others:
        yield (f"default_{word.lower()}",), f"is {default}, which is not a {word} of this site"
    for name, queue in queues.items():
        if queue.submit_to is not None and queue.submit_to not in queues:
            hint = did_you_mean(queue.submit_to, queues)
            yield (field, name, "submit_to"), f"is {queue.submit_to}, which is no {word} of this site{hint}"
        for number, range_ in enumerate(queue.ranges):
            if range_.max_nodes is not None and range_.min_nodes > range_.max_nodes:
                yield (field, name, "ranges", number), "has more nodes as its minimum than as its maximum"
            shortest, longest = range_.min_walltime, range_.max_walltime
            if shortest and longest and seconds(shortest) > seconds(longest):
                yield (field, name, "ranges", number), "has a longer minimum walltime than maximum"


def _descending(site: Site) -> Iterator[tuple[FieldPath, str]]:
    """CPU lists of which a part would be no cores at all."""
    lists: list[tuple[FieldPath, str | None]] = [
        (("options", name, "reserved_cores"), option.reserved_cores) for name, option in site.options.items()
    ]
    if node := site.node:
        lists.append((("node", "reserved_cores"), node.reserved_cores))
        lists += [(("node", "sockets", number), one) for number, one in enumerate(node.sockets)]
        lists += [(("node", "device_cores", number), one) for number, one in enumerate(node.device_cores)]
    for path, text in lists:
        if text and (part := descending(text)):
            yield path, f"is {text}, but {part} descends: write the smaller number first"


def _of_reserved(site: Site, node: Node) -> Iterator[tuple[FieldPath, str]]:
    """Reserved cores that the node has not; where its cores are unknown, nobody can say."""
    there = {core for socket in node.sockets for core in cpus(socket)}
    lists: list[tuple[FieldPath, str | None]] = [(("node", "reserved_cores"), node.reserved_cores)]
    lists += [(("options", name, "reserved_cores"), one.reserved_cores) for name, one in site.options.items()]
    for path, text in lists:
        if there and text and not there.issuperset(cpus(text)):
            yield path, f"is {text}, which no socket has"


def _of_node(node: Node) -> Iterator[tuple[FieldPath, str]]:
    sockets = [set(cpus(socket)) for socket in node.sockets]
    seen: set[int] = set()
    for number, (socket, cores) in enumerate(zip(node.sockets, sockets, strict=True)):
        if len(cpus(socket)) > len(cores) or not seen.isdisjoint(cores):
            yield ("node", "sockets", number), f"is {socket}: each core may appear only once"
        seen |= cores
    if sockets and node.devices and len(node.devices) != len(sockets):
        message = (
            f"has {len(node.devices)} numbers, but there are {len(sockets)} sockets: write one "
            "for each, 0 for a socket without; a device belongs to the one socket that it is connected to"
        )
        yield ("node", "devices"), message
        return
    homes = []
    for number, own in enumerate(node.device_cores):
        home = [at for at, cores in enumerate(sockets) if cores.issuperset(cpus(own))]
        if not home:
            yield ("node", "device_cores", number), f"is {own}, which is not on one socket"
        homes += home
    listed = len(node.device_cores)
    if listed and listed != node.device_count:
        message = f"has {listed} CPU lists, but there are {node.device_count} devices"
        yield ("node", "device_cores"), message
    elif listed and len(homes) == listed and [homes.count(at) for at in range(len(sockets))] != node.devices:
        message = "puts other numbers of devices on the sockets than node.devices"
        yield ("node", "device_cores"), message
    if node.device_count and node.device_variable is None:
        example = "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK"
        yield ("node", "device_variable"), f"is missing: ranks are given their devices with it; {example}"
