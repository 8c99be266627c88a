"""Makes a machine's profile as data, from what its scheduler reports: fields, comments and questions. Pure.

`castoff sites new` writes the whole profile; `castoff sites check --update` changes parts of an existing one.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, NamedTuple

from castoff.launcher.config.quantities import units
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind, QueueInfo, memory_words
from castoff.launcher.siting.entries import (
    QUESTION,
    Comment,
    Entry,
    Field,
    Question,
    Section,
    Sections,
    cited,
    lines_of,
)
from castoff.launcher.text.quoting import yaml_value

_VARIABLES = {
    "CUDA_VISIBLE_DEVICES": r"nvidia|tesla|geforce|quadro|titan|[rg]tx|"
    r"(a2|a10|a16|a30|a40|a100|a800|a[456]000|h20|h100|h200|h800|l4|l20|l40s?|v100s?|p4|p40|p100|k[248]0m?|t4|"
    r"b[123]00|gh200|gb[23]00)(?![0-9])",
    "ROCR_VISIBLE_DEVICES": r"amd|instinct|radeon|gfx[0-9]|mi[0-9]",
    "ZE_AFFINITY_MASK": r"intel|pvc|max_?1[0-9]{3}|ponte",
}
"""The variable that limits a process to some devices, and the pattern of device types, as clusters name
them, to which it applies.
"""


class Draft(NamedTuple):
    """The profile to be made: its name, its nodes and its origin."""

    name: str
    scheduler: str
    """The scheduler's name in profiles."""
    title: str
    """The scheduler's name in prose."""
    date: str
    host: str
    """The host on which the scheduler was asked."""
    queue: str | None = None
    """The queue to which the profile's jobs go, and whose nodes it describes; None: the default queue."""
    gpu_type: str | None = None
    """The type of these nodes' devices; None: any type, or no devices."""
    shared: bool = False
    """Whether the profile is for several users, so that it must not name this user's account."""
    login_shell: str = "/bin/bash"


def device_variable(device_type: str | None) -> str | None:
    """The variable that limits a process to devices of a type; None if the type is unknown."""
    for variable, names in _VARIABLES.items():
        if device_type and re.match(names, device_type.lower()):
            return variable
    return None


def chosen_kind(info: MachineInfo, queue: str | None, gpu_type: str | None = None) -> NodeKind | None:
    """The most frequent kind of nodes in a queue that have devices of this type; None if there is none."""
    for kind in info.nodes:  # the most frequent first
        if (queue is None or not kind.queues or queue in kind.queues) and gpu_type in (
            None,
            kind.device_type,
        ):
            return kind
    return None


def profile_text(draft: Draft, info: MachineInfo) -> str:
    """The whole profile."""
    kind = chosen_kind(info, draft.queue or info.default_queue, draft.gpu_type)
    paragraphs = [
        _head(draft, info, kind),
        node_entries(draft, info, kind),
        other_nodes_entries(draft, info, [kind]) if kind else [],
        _queues(draft, info),
        _qos(draft, info),
        _array(draft, info),
        _directive_values(draft, info),
        _defaults(draft, info, kind),
        _questions(draft, info),
    ]
    blocks = ("\n".join(lines_of(entries)) for entries in paragraphs)
    return "\n\n".join(filter(None, blocks)) + "\n"


def _head(draft: Draft, info: MachineInfo, kind: NodeKind | None) -> Iterator[Entry]:
    reporter = f"{draft.title} {info.version or ''}".rstrip()
    yield Comment(
        f"Made by `castoff sites new {draft.name}` on {draft.date}, from what {reporter} reported on "
        f"{draft.host}."
    )
    yield Comment(  # its first words keep the mark away from the beginning of a line
        f"A line with `{QUESTION}` is a question that {draft.title} does not answer: write the answer into "
        f"the profile and remove the line. `castoff sites check {draft.name}` shows what has changed on the "
        "machine since then, and writes it here with --update."
    )
    cluster = f"the {draft.title} cluster"
    cluster += f" {info.name}" if info.name and info.name != draft.name else ""
    nodes = f", nodes with {kind._replace(memory=None).words(_cores_word(info))}" if kind else ""
    yield Field("description", cluster + nodes)
    yield Field("extends", draft.scheduler)
    if "bash" not in draft.login_shell:
        yield Comment(
            f"Jobs run in bash, but your login shell is {draft.login_shell}: bash may lack what that shell's "
            "files set up, such as `module`."
        )
        yield Question("Which lines set this up for bash? For example:", ["setup: [source /etc/profile]"])
    for field in ("gpu_request", "device_type_resource"):
        if field in info.fields:
            yield Field(field, info.fields[field])


def _cores_word(info: MachineInfo) -> str:
    return "CPUs" if info.counts_threads else "cores"


def _like_this(kind: NodeKind, queues: str = "") -> str:
    features = f"; features: {', '.join(kind.features)}" if kind.features else ""
    return f"{kind.nodes} like this{queues}{features}"


def node_entries(draft: Draft, info: MachineInfo, kind: NodeKind | None) -> Iterator[Entry]:
    """The section `node` for nodes of this kind; a question if the scheduler reports no nodes."""
    if kind is None:
        yield Question(
            f"What does a node have? {draft.title} does not report it.",
            ["node:", '  sockets: ["0-31"]', "  source: lscpu on a node", f"  date: {draft.date}"],
        )
        return
    sockets, entries = _sockets(draft, info, kind)
    entries += _devices(draft, kind, sockets)
    if kind.whole:
        entries.append(Field("exclusive", True))
    if kind.memory:
        entries.append(Field("memory", memory_words(kind.memory)))
    entries += cited(info.sources.get("nodes", draft.title), draft.date)
    queues = f" of {', '.join(kind.queues)}" if kind.queues else ""
    yield Section("node", entries, _like_this(kind, queues))


def _sockets(draft: Draft, info: MachineInfo, kind: NodeKind) -> tuple[int, list[Entry]]:
    """The number of sockets that the profile lists, and the fields with their cores."""
    probe = f"`castoff sites probe {draft.name}` finds them; so does `lscpu --extended` on a node"
    if info.counts_threads:
        question = (
            f"Which physical cores does each socket have? {draft.title} counts {kind.cores} CPUs, which may "
            f"be cores or hardware threads. Until this is known, castoff binds no rank to cores. {probe}."
        )
        return 0, [Question(question, ['sockets: ["0-31", "32-63"]'])]
    if kind.sockets is None or kind.cores % kind.sockets:
        sockets = 1
        question = (
            f"Which cores belong to which socket? {draft.title} does not know: it counts {kind.cores} cores, "
            f"listed here as one socket. {probe}."
        )
    else:
        sockets = kind.sockets
        question = (
            "Are the cores numbered like this, socket after socket and before their hardware threads? "
            f"{draft.title} knows how many there are, but not their numbers. {probe}."
        )
    size = kind.cores // sockets
    cores = [_range(socket * size, size) for socket in range(sockets)]
    entries: list[Entry] = [Question(question), Field("sockets", cores)]
    if kind.reserved:
        question = (
            f"Which {kind.reserved} of the cores are reserved for the system? {draft.title} gives them to no "
            "job, and refuses a job that asks for all cores."
        )
        entries.append(Question(question, [f'reserved_cores: "0-{kind.reserved - 1}"']))
    if kind.cpus_per_core > 1:
        entries.append(Field("cpus_per_core", kind.cpus_per_core))
    return sockets, entries


def _range(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _devices(draft: Draft, kind: NodeKind, sockets: int) -> Iterator[Entry]:
    if not kind.devices:
        yield Field("devices", [0] * max(sockets, 1))
        return
    if sockets < 2:
        counts = [kind.devices]
    elif len(kind.device_sockets) == 1 and kind.device_sockets[0] < sockets:
        counts = [kind.devices if socket == kind.device_sockets[0] else 0 for socket in range(sockets)]
    else:
        counts = [kind.devices // sockets + (socket < kind.devices % sockets) for socket in range(sockets)]
        yield Question(
            f"How many of its {kind.devices} devices belong to each socket? {draft.title} does not report "
            f"it; they are spread evenly here. `castoff sites probe {draft.name}` finds them."
        )
    variable = device_variable(kind.device_type)
    if variable is None:  # write no devices, or castoff would set a variable that nothing reads
        yield Question(
            f"What limits a process to some of its {kind.devices} devices: CUDA_VISIBLE_DEVICES (NVIDIA), "
            "ROCR_VISIBLE_DEVICES (AMD) or ZE_AFFINITY_MASK (Intel; a device may be a tile)? Without an "
            "answer, castoff gives ranks no devices. It belongs under `node`:",
            [f"devices: {counts}", "device_variable: CUDA_VISIBLE_DEVICES"],
        )
        return
    yield Field("devices", counts, kind.device_type or "")
    yield Field("device_variable", variable)


def other_nodes_entries(draft: Draft, info: MachineInfo, own: Container[NodeKind]) -> Iterator[Entry]:
    """The section `other_nodes`: all kinds of nodes except `own`, the kinds that the profile describes."""
    others = [kind for kind in info.nodes if kind not in own]
    if not others:
        yield Field("other_nodes", [])
        return
    yield Comment(
        "The other kinds of nodes, which `castoff sites check` compares. castoff plans no jobs for them "
        "with this profile: `castoff sites new OTHER-NAME --queue QUEUE` makes a profile for the nodes of a "
        "queue, and --gpu-type for nodes with such devices."
    )
    yield Sections("other_nodes", [[*_other_node(draft, info, kind)] for kind in others])


def _other_node(draft: Draft, info: MachineInfo, kind: NodeKind) -> Iterator[Entry]:
    yield Field("cores", kind.cores, _like_this(kind))
    if kind.devices:
        yield Field("devices", kind.devices)
    if kind.device_type:
        yield Field("device_type", kind.device_type)
    if kind.memory:
        yield Field("memory", memory_words(kind.memory))
    if kind.queues:
        yield Field("queues", list(kind.queues))
    yield from cited(info.sources.get("nodes", ""), draft.date)


def _queues(draft: Draft, info: MachineInfo) -> Iterator[Entry]:
    routed = {target for queue in info.queues.values() for target in queue.routes_to}
    listed = {
        name: queue
        for name, queue in info.queues.items()
        if (queue.offered or name in routed) and not queue.passing
    }
    hidden = sorted(name for name in info.queues if name not in listed)
    if hidden:
        yield Comment(f"Left out, because hidden, closed or for a reservation: {', '.join(hidden)}.")
    if info.default_queue:
        yield Field("default_queue", info.default_queue)
    if listed and info.lists_all_queues and not hidden:
        yield Field("other_queues", False)
    if listed:
        entries = [queue_entry(draft, info, "queues", name, queue) for name, queue in listed.items()]
        yield Section("queues", entries)


def _qos(draft: Draft, info: MachineInfo) -> Iterator[Entry]:
    allowed = info.user.qos if info.user else ()
    listed = {
        name: qos for name, qos in (info.qos or {}).items() if (name in allowed if allowed else qos.offered)
    }
    if not listed:
        return
    if allowed and not draft.shared:
        yield Comment("The QOS that your accounts may use.")
    if info.user and info.user.default_qos in listed:
        yield Field("default_qos", info.user.default_qos)
    yield Section("qos", [queue_entry(draft, info, "qos", name, qos) for name, qos in listed.items()])


def queue_entry(draft: Draft, info: MachineInfo, field: str, name: str, queue: QueueInfo) -> Section:
    """An entry for a queue or a QOS; `field` is `queues` or `qos`."""
    entries: list[Entry] = []
    routing = next((other for other, about in info.queues.items() if name in about.routes_to), None)
    if field == "queues" and routing and not queue.offered:
        entries.append(Field("submit_to", routing))
    else:
        if ranges := ranges_of(queue, info):
            entries.append(Field("ranges", ranges, "of the queues behind it" if len(ranges) > 1 else ""))
        if queue.max_jobs:
            entries.append(Field("max_jobs", queue.max_jobs))
        if queue.max_devices:
            entries.append(Field("max_devices", queue.max_devices))
    entries += cited(source_of(info, field, name, draft.title), draft.date)
    return Section(name, entries, "; ".join(queue.notes))


def source_of(info: MachineInfo, field: str, name: str, otherwise: str = "") -> str:
    """The source to cite for a queue or a QOS."""
    source = info.sources.get(field, otherwise)
    return f"{source} {name}" if field == "queues" else source


def ranges_of(queue: QueueInfo, info: MachineInfo) -> list[dict[str, Any]]:
    """The ranges of a queue. A routing queue has those of the queues behind it, within its own bounds."""
    behind = [info.queues[name] for name in queue.routes_to if name in info.queues]
    ranges: list[dict[str, Any]] = []
    for target in behind or [queue]:
        bounds = _bounds(
            max(target.min_nodes or 1, queue.min_nodes or 1),
            min(filter(None, (target.max_nodes, queue.max_nodes)), default=None),
            max(target.min_walltime or 0, queue.min_walltime or 0),
            min(filter(None, (target.max_walltime, queue.max_walltime)), default=None),
        )
        if bounds not in ranges:
            ranges.append(bounds)
    return [] if {} in ranges else ranges


def _bounds(
    min_nodes: int, max_nodes: int | None, min_walltime: int, max_walltime: int | None
) -> dict[str, Any]:
    """A range of a profile, without bounds that allow everything."""
    bounds = {
        "min_nodes": min_nodes if min_nodes > 1 else None,
        "max_nodes": max_nodes,
        "min_walltime": min_walltime and units(min_walltime),
        "max_walltime": max_walltime and units(max_walltime),
    }
    return {name: bound for name, bound in bounds.items() if bound}


def _array(draft: Draft, info: MachineInfo) -> Iterator[Entry]:
    if info.array_count:
        source = cited(info.sources.get("array", ""), draft.date)
        yield Section("array", [Field("max_count", info.array_count), *source])


def _directive_values(draft: Draft, info: MachineInfo) -> Iterator[Entry]:
    directives: Mapping[str, Mapping[str, Any]] = info.fields.get("directive_values", {})
    source = cited(info.sources.get("directive_values", ""), draft.date)
    entries = [
        Section(name, [*(Field(field, values[field]) for field in ("among", "separator")), *source])
        for name, values in directives.items()
    ]
    if entries:
        yield Section("directive_values", entries)


def _defaults(draft: Draft, info: MachineInfo, kind: NodeKind | None) -> Iterator[Entry]:
    user = info.user
    account = user and (user.default_account or next(iter(user.accounts), None))
    entries: list[Entry] = []
    if user and account and draft.shared:
        yield Comment(
            "Jobs without `account` are charged to the default account of whoever submits them. To name one "
            "for everyone who uses this project:"
        )
        yield Comment(f"defaults: {yaml_value({'account': account})}")
    elif user and account:
        note = f"yours are {', '.join(user.accounts)}" if len(user.accounts) > 1 else "your only one"
        entries.append(Field("account", account, note))
    if draft.queue not in (None, info.default_queue):
        entries.append(Field("queue", draft.queue))
    types = {node.device_type for node in info.nodes if node.device_type}
    can_ask = any(field in info.fields for field in ("gpu_request", "device_type_resource"))
    if kind and kind.device_type and len(types) > 1 and can_ask:  # otherwise jobs may get another type
        entries.append(Field("device_type", kind.device_type))
    if entries:
        yield Section("defaults", entries)


def _questions(draft: Draft, info: MachineInfo) -> Iterator[Entry]:
    for about, reason in info.unanswered:
        if about not in info.lacks:
            yield Question(f"Nothing is known about {about}, because the query failed: {reason}")
    for question, answer in info.questions:
        yield Question(question, [line.replace("DATE", draft.date) for line in answer])
