"""A machine's profile from what its scheduler reports, with comments, for a person to complete. Pure.

What the scheduler leaves open stands in it as a question, a line that begins with `# ?`. Nothing is guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Generator, Iterator, Mapping
from typing import Any, NamedTuple

from castoff.launcher.config.quantities import units
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind, QueueInfo, memory_words
from castoff.launcher.siting.lines import (
    QUESTION,
    ask_person,
    clean,
    comment,
    fact,
    flow,
    value_text,
)

_VARIABLES = {
    "CUDA_VISIBLE_DEVICES": r"nvidia|tesla|geforce|quadro|titan|[rg]tx|"
    r"(a2|a10|a16|a30|a40|a100|a800|a[456]000|h20|h100|h200|h800|l4|l20|l40s?|v100s?|p4|p40|p100|k[248]0m?|t4|"
    r"b[123]00|gh200|gb[23]00)(?![0-9])",
    "ROCR_VISIBLE_DEVICES": r"amd|instinct|radeon|gfx[0-9]|mi[0-9]",
    "ZE_AFFINITY_MASK": r"intel|pvc|max_?1[0-9]{3}|ponte",
}
"""What limits a process to some devices, by how clusters call the types of these devices."""


class Draft(NamedTuple):
    """What a profile is made of beside what the scheduler said."""

    name: str
    scheduler: str
    """As profiles call it."""
    title: str
    """As people call it."""
    date: str
    host: str
    """Where it was asked."""
    queue: str | None = None
    """The queue whose nodes it is for, and that jobs get; None: the default one's."""
    gpu_type: str | None = None
    """The type of devices that these nodes have; None: any, or none."""
    shared: bool = False
    """Whether others will use it: then it holds nothing of whoever asks."""
    login_shell: str = "/bin/bash"
    """Of whoever asks."""


def device_variable(kind: str | None) -> str | None:
    """The variable that limits a process to devices of that type; None: it is not known."""
    for variable, names in _VARIABLES.items():
        if kind and re.match(names, kind.lower()):
            return variable
    return None


def chosen_kind(info: MachineInfo, queue: str | None, gpu_type: str | None = None) -> NodeKind | None:
    """The most frequent kind of nodes of a queue, with devices of a type; None: there is none, or "
    "nobody says."""
    fitting = [one for one in info.nodes if queue is None or not one.queues or queue in one.queues]
    return next((one for one in fitting if gpu_type in (None, one.device_type)), None)


def profile_text(draft: Draft, info: MachineInfo) -> str:
    """The whole profile."""
    kind = chosen_kind(info, draft.queue or info.default_queue, draft.gpu_type)
    parts = [
        _head(draft, info, kind),
        node_lines(draft, info, kind),
        other_nodes_lines(draft, info, [kind]) if kind else (),
        _queues(draft, info),
        _qos(draft, info),
        _array(draft, info),
        _further(draft, info),
        _defaults(draft, info, kind),
        _questions(draft, info),
    ]
    return "\n".join("\n".join(part) + "\n" for part in map(clean, parts) if part)


def _head(draft: Draft, info: MachineInfo, kind: NodeKind | None) -> Iterator[str]:
    title = f"{draft.title} {info.version or ''}".rstrip()
    yield from comment(
        f"Made by `castoff sites new {draft.name}` on {draft.date}, from what {title} said on {draft.host}."
    )
    yield from comment(
        f"A line with `{QUESTION}` is a question that it does not answer: answer it in the profile, and "
        "remove it. "
        f"`castoff sites check {draft.name}` shows what has changed on the machine since; with --update it "
        "writes that here."
    )
    what = f"the {draft.title} cluster" + (f" {info.name}" if info.name and info.name != draft.name else "")
    nodes = f", nodes with {kind._replace(memory=None).words(_counted(info))}" if kind else ""
    yield f"description: {value_text(what + nodes)}"
    yield f"extends: {draft.scheduler}"
    if "bash" not in draft.login_shell:
        yield from comment(
            f"Jobs run in bash, and your login shell is {draft.login_shell}: what its files set up, such as "
            "`module`, bash may not have."
        )
        yield from ask_person(
            "Which lines does bash need for it? They go under", ["setup: [source /etc/profile]"]
        )
    for field in ("gpu_request", "device_type_resource"):
        if field in info.fields:
            yield f"{field}: {value_text(info.fields[field])}"


def _device_type(info: MachineInfo, kind: NodeKind | None) -> str | None:
    """The type of device that jobs have to ask for, as there are nodes with another one."""
    types = {one.device_type for one in info.nodes if one.device_type}
    asked = any(field in info.fields for field in ("gpu_request", "device_type_resource"))
    return kind.device_type if kind and len(types) > 1 and asked else None


def _counted(info: MachineInfo) -> str:
    return "CPUs" if info.counts_threads else "cores"


def node_lines(draft: Draft, info: MachineInfo, kind: NodeKind | None) -> Iterator[str]:
    """`node`, as nodes of a kind have it."""
    if kind is None:
        yield from ask_person(
            f"What does a node have? {draft.title} does not say.",
            ["node:", '  sockets: ["0-31"]', "  source: lscpu on a node", f"  date: {draft.date}"],
        )
        return
    where = f" of {', '.join(kind.queues)}" if kind.queues else ""
    yield f"node:  # {kind.nodes} like this{where}" + (
        f"; features: {', '.join(kind.features)}" if kind.features else ""
    )
    sockets = yield from _sockets(draft, info, kind)
    yield from _devices(draft, kind, sockets)
    if kind.whole:
        yield "  exclusive: true"
    if kind.memory:
        yield f"  memory: {memory_words(kind.memory)}"
    yield from fact(info.sources.get("nodes", draft.title), draft.date, 2)


def _sockets(draft: Draft, info: MachineInfo, kind: NodeKind) -> Generator[str, None, int]:
    """The cores; returns how many sockets the profile has then."""
    probe = f"`castoff sites probe {draft.name}` finds them; so does `lscpu --extended` on a node"
    if info.counts_threads:
        yield from ask_person(
            f"Which physical cores does each socket have? {draft.title} counts {kind.cores} CPUs, which "
            "may be "
            f"cores or their hardware threads. Until it is known, ranks are bound to none. {probe}.",
            ['sockets: ["0-31", "32-63"]'],
            2,
        )
        return 0
    if kind.sockets is None or kind.cores % kind.sockets:
        listed = [_range(0, kind.cores)]
        yield from ask_person(
            f"Which cores belong to which socket? {draft.title} does not know: it counts {kind.cores} cores, "
            f"listed here as one socket. {probe}.",
            [],
            2,
        )
    else:
        each = kind.cores // kind.sockets
        listed = [_range(at * each, each) for at in range(kind.sockets)]
        yield from ask_person(
            "Are its cores numbered so, socket after socket and before their hardware threads? "
            f"{draft.title} "
            f"knows how many there are, not their numbers. {probe}.",
            [],
            2,
        )
    yield f"  sockets: [{', '.join(map(json.dumps, listed))}]"
    if kind.reserved:
        yield from ask_person(
            f"Which {kind.reserved} of its cores are kept for the system? {draft.title} gives them to no "
            "job, "
            "and refuses one that asks for all.",
            [f'reserved_cores: "0-{kind.reserved - 1}"'],
            2,
        )
    if kind.cpus_per_core > 1:
        yield f"  cpus_per_core: {kind.cpus_per_core}"
    return len(listed)


def _range(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _devices(draft: Draft, kind: NodeKind, sockets: int) -> Iterator[str]:
    if not kind.devices:
        yield f"  devices: {[0] * max(sockets, 1)}"
        return
    held = [kind.devices] if sockets < 2 else _over(kind, sockets)
    if held is None:
        held = [kind.devices // sockets + (at < kind.devices % sockets) for at in range(sockets)]
        yield from ask_person(
            f"How many of its {kind.devices} devices belong to each socket? {draft.title} does not say; here "
            f"they are spread evenly. `castoff sites probe {draft.name}` finds them.",
            [],
            2,
        )
    variable = device_variable(kind.device_type)
    if variable is None:
        yield from ask_person(
            f"What limits a process to some of its {kind.devices} devices: CUDA_VISIBLE_DEVICES (NVIDIA), "
            "ROCR_VISIBLE_DEVICES (AMD) or ZE_AFFINITY_MASK (Intel; a device may be a tile)? Without it "
            "castoff "
            "gives ranks none. Then",
            [f"devices: {held}", "device_variable: CUDA_VISIBLE_DEVICES"],
            2,
        )
        return
    yield f"  devices: {held}  # {kind.device_type}"
    yield f"  device_variable: {variable}"


def _over(kind: NodeKind, sockets: int) -> list[int] | None:
    """How many devices each socket has, where they all belong to one; None: it is not known."""
    if len(kind.device_sockets) != 1 or kind.device_sockets[0] >= sockets:
        return None
    return [kind.devices if at == kind.device_sockets[0] else 0 for at in range(sockets)]


def other_nodes_lines(draft: Draft, info: MachineInfo, own: Container[NodeKind]) -> Iterator[str]:
    """`other_nodes`: every kind but the profile's own."""
    others = [one for one in info.nodes if one not in own]
    if not others:
        yield "other_nodes: []"
        return
    yield from comment(
        "The other kinds of nodes, which `castoff sites check` compares. This profile plans no jobs for "
        "them: "
        "`castoff sites new OTHER-NAME --queue QUEUE` makes a profile for those of a queue, and "
        "--gpu-type for those "
        "with such devices."
    )
    yield "other_nodes:"
    for kind in others:
        features = f"; features: {', '.join(kind.features)}" if kind.features else ""
        yield f"  - cores: {kind.cores}  # {kind.nodes} like this{features}"
        if kind.devices:
            yield f"    devices: {kind.devices}"
        if kind.device_type:
            yield f"    device_type: {value_text(kind.device_type)}"
        if kind.memory:
            yield f"    memory: {memory_words(kind.memory)}"
        if kind.queues:
            yield f"    queues: {flow(kind.queues)}"
        yield from fact(info.sources.get("nodes", ""), draft.date, 4)


def _queues(draft: Draft, info: MachineInfo) -> Iterator[str]:
    routed = {one: name for name, queue in info.queues.items() for one in queue.routes_to}
    listed = {
        name: queue
        for name, queue in info.queues.items()
        if (queue.offered or name in routed) and not queue.passing
    }
    hidden = sorted(name for name in info.queues if name not in listed)
    if hidden:
        yield from comment(f"Left out, as hidden, shut or a reservation's: {', '.join(hidden)}.")
    if info.default_queue:
        yield f"default_queue: {value_text(info.default_queue)}"
    if listed and info.lists_all_queues and not hidden:
        yield "other_queues: false"
    if listed:
        yield "queues:"
    for name, queue in listed.items():
        for line in queue_lines(draft, info, "queues", name, queue):
            yield f"  {line}"


def _qos(draft: Draft, info: MachineInfo) -> Iterator[str]:
    mine = info.user.qos if info.user else ()
    listed = {name: one for name, one in (info.qos or {}).items() if (name in mine if mine else one.offered)}
    if not listed:
        return
    if mine and not draft.shared:
        yield from comment("Those that your accounts may use.")
    if info.user and info.user.default_qos in listed:
        yield f"default_qos: {value_text(info.user.default_qos)}"
    yield "qos:"
    for name, one in listed.items():
        for line in queue_lines(draft, info, "qos", name, one):
            yield f"  {line}"


def queue_lines(draft: Draft, info: MachineInfo, field: str, name: str, queue: QueueInfo) -> Iterator[str]:
    """An entry of `queues` or of `qos`."""
    source = info.sources.get(field, draft.title)
    source = f"{source} {name}" if field == "queues" else source
    yield f"{value_text(name)}:" + (f"  # {'; '.join(queue.notes)}" if queue.notes else "")
    routed = [one for one, other in info.queues.items() if name in other.routes_to]
    if field == "queues" and routed and not queue.offered:
        yield f"  submit_to: {value_text(routed[0])}"
    else:
        ranges = ranges_of(queue, info)
        if len(ranges) == 1:
            yield f"  ranges: {ranges_text(ranges)}"
        elif ranges:
            yield "  ranges:  # of the queues behind it"
            yield from (f"    - {ranges_text([one])[1:-1]}" for one in ranges)
        if queue.max_jobs:
            yield f"  max_jobs: {queue.max_jobs}"
        if queue.max_devices:
            yield f"  max_devices: {queue.max_devices}"
    yield from fact(source, draft.date, 2)


def ranges_of(queue: QueueInfo, info: MachineInfo) -> list[dict[str, Any]]:
    """What a queue takes together; one that routes takes what each of those takes, within its own bounds."""
    behind = [info.queues[one] for one in queue.routes_to if one in info.queues]
    found: list[dict[str, Any]] = []
    for one in behind or [queue]:
        bounds = queue._replace(
            min_nodes=max(one.min_nodes or 1, queue.min_nodes or 1),
            max_nodes=min(filter(None, (one.max_nodes, queue.max_nodes)), default=None),
            min_walltime=max(one.min_walltime or 0, queue.min_walltime or 0),
            max_walltime=min(filter(None, (one.max_walltime, queue.max_walltime)), default=None),
        )
        limits = limits_of(bounds)
        if limits not in found:
            found.append(limits)
    return [] if {} in found else found


def limits_of(queue: QueueInfo) -> dict[str, Any]:
    """A range of a profile, without what bounds nothing."""
    nodes = {"min_nodes": (queue.min_nodes or 1) > 1 and queue.min_nodes, "max_nodes": queue.max_nodes}
    times = {"min_walltime": queue.min_walltime, "max_walltime": queue.max_walltime}
    return {name: bound for name, bound in nodes.items() if bound} | {
        name: units(bound) for name, bound in times.items() if bound
    }


def ranges_text(ranges: list[dict[str, Any]]) -> str:
    """Ranges in one line."""
    return (
        "["
        + ", ".join("{" + ", ".join(f"{name}: {one}" for name, one in each.items()) + "}" for each in ranges)
        + "]"
    )


def _array(draft: Draft, info: MachineInfo) -> Iterator[str]:
    if info.array_count:
        yield "array:"
        yield f"  max_count: {info.array_count}"
        yield from fact(info.sources.get("array", ""), draft.date, 2)


def _further(draft: Draft, info: MachineInfo) -> Iterator[str]:
    """Values of directives."""
    held: Mapping[str, Mapping[str, Any]] = info.fields.get("directive_values", {})
    if held:
        yield "directive_values:"
    for name, values in held.items():
        yield f"  {value_text(name)}:"
        yield f"    among: {flow(values['among'])}"
        yield f"    separator: {value_text(values['separator'])}"
        yield from fact(info.sources.get("directive_values", ""), draft.date, 4)


def _defaults(draft: Draft, info: MachineInfo, kind: NodeKind | None) -> Iterator[str]:
    user = info.user
    account = user and (user.default_account or next(iter(user.accounts), None))
    if account and draft.shared:
        yield from comment(
            "Jobs without `account` are charged to the default account of whoever submits them. To name one "
            "for all who use this project:"
        )
        yield f"# defaults: {{account: {value_text(account)}}}"
    mine = bool(account) and not draft.shared
    queue = draft.queue not in (None, info.default_queue)
    device_type = _device_type(info, kind)
    if mine or queue or device_type:
        yield "defaults:"
    if mine and user:
        several = f"yours are {', '.join(user.accounts)}" if len(user.accounts) > 1 else "your only one"
        yield f"  account: {value_text(account)}  # {several}"
    if queue:
        yield f"  queue: {value_text(draft.queue)}"
    if device_type:
        yield f"  device_type: {value_text(device_type)}"


def _questions(draft: Draft, info: MachineInfo) -> Iterator[str]:
    for about, why in info.unanswered:
        if about in info.lacks:
            continue
        yield from ask_person(f"Nothing is known of what was asked about {about}: {why}", [])
    for question, answer in info.questions:
        yield from ask_person(question, [line.replace("DATE", draft.date) for line in answer])
