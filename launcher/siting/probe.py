"""The facts that `castoff sites probe` collects on a node, and writing them into a profile. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.config.quantities import CPULIST_PATTERN, cpulist, cpus
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import printable
from castoff.launcher.launchers.commands import LAUNCHERS, named_by
from castoff.launcher.schedulers.machine_info import memory_words
from castoff.launcher.siting.entries import QUESTION
from castoff.launcher.siting.update import Updated
from castoff.launcher.typed.editing import has, put, put_block

_SOURCE = "castoff sites probe"

_QUESTION_LINES = re.compile(rf"^ *{re.escape(QUESTION)} .*\n(?: *#   .*\n)*", re.MULTILINE)

_VENDORS = {
    "0x10de": "CUDA_VISIBLE_DEVICES",
    "0x1002": "ROCR_VISIBLE_DEVICES",
    "0x8086": "ZE_AFFINITY_MASK",
}
"""The variable that limits a process to some devices, by the PCI number of their vendor."""

_NOT_DISKS = re.compile("tmpfs|devtmpfs|overlay|nfs|nfs4|lustre|gpfs|beegfs|fuse|ceph|autofs")

_OF_INTEREST = re.compile(r"torch|conda|python|frameworks|cuda|rocm|nccl|rccl|oneapi|mpi", re.IGNORECASE)
_MODULES_SHOWN = 40


class Device(NamedTuple):
    """A device on the PCI bus."""

    address: str
    vendor: str
    parts: int
    """The number of tiles, each of which counts as a device."""
    near: tuple[int, ...]
    """The CPUs nearest to the device."""


class NodeFacts(NamedTuple):
    """The hardware and programs of a node."""

    host: str
    sockets: list[list[int]]
    """The first CPU of each core, by socket."""
    memory: int | None
    """The node's memory in MiB; None: not known."""
    devices: list[Device]
    """The node's devices, in the order of their numbers."""
    disk: str | None
    """A folder on a disk of the node other than the one with /tmp."""
    mpiexec: LauncherName | None
    """The launcher whose mpiexec is on PATH."""
    modules: list[str]
    reached: Mapping[str, list[str]]
    """The other hosts of the job, each with the ways that reached it: `ssh`, `remote` (the remote shell)."""
    remote_shell: str | None
    """The scheduler's program that starts commands on other hosts."""

    @property
    def cores(self) -> int:
        """The number of physical cores."""
        return sum(map(len, self.sockets))

    def words(self) -> str:
        """The facts in one line."""
        facts = [
            f"{len(self.sockets)} sockets" if len(self.sockets) != 1 else "1 socket",
            f"{self.cores} cores",
            f"{len(self.devices) or 'no'} devices on its PCI bus",
        ]
        facts += [f"disk {self.disk}"] if self.disk else []
        facts += [f"mpiexec of {self.mpiexec}"] if self.mpiexec else []
        if self.reached:
            facts.append("ssh to another host is " + ("closed" if self.ssh_fails else "open"))
        return ", ".join(facts)

    @property
    def ssh_fails(self) -> bool:
        """Whether ssh did not reach one of the other hosts."""
        return any("ssh" not in ways for ways in self.reached.values())

    @property
    def has_remote_shell(self) -> bool:
        """Whether the scheduler's remote shell reached every other host."""
        return bool(self.remote_shell) and all("remote" in ways for ways in self.reached.values())


def parse(text: str) -> NodeFacts:
    """Parse the output of `probe_job.sh`. A missing or unreadable section counts as unknown."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            lines = sections.setdefault(line[3:].strip(), [])
        else:
            lines.append(line.strip())
    memory = re.search(r"MemTotal:\s*(\d+) kB", "\n".join(sections.get("memory", [])))
    # The first line is the path of mpiexec, which may contain another launcher's name.
    version = " ".join(line for line in sections.get("mpiexec", []) if not line.startswith("/"))
    modules = [line for line in sections.get("modules", []) if line and not line.endswith(":")]
    shells = [line for line in sections.get("remote", []) if re.fullmatch(r"/[\w./+-]+", line)]
    return NodeFacts(
        host=printable(next(iter(sections.get("host", [])), "a node")),
        sockets=_sockets(sections.get("cpus", [])),
        memory=int(memory[1]) // 1024 if memory else None,
        devices=_devices(sections),
        disk=_disk(sections.get("disks", [])),
        mpiexec=named_by(version),
        modules=[*map(printable, modules)],
        reached={name[6:]: ways for name, ways in sections.items() if name.startswith("reach ")},
        remote_shell=next(iter(shells), None),
    )


def _sockets(lines: Sequence[str]) -> list[list[int]]:
    """Parse lines of `CPU,core,socket,node` to the first CPU of every core, by socket."""
    first_cpus: dict[tuple[str, str], int] = {}
    for line in lines:
        if row := re.match(r"([0-9]{1,4}),([0-9]{1,4}),([0-9]{0,4})(?:,|$)", line):
            core = (row[3] or "0", row[2])
            first_cpus[core] = min(int(row[1]), first_cpus.get(core, 1 << 30))
    sockets: dict[str, list[int]] = {}
    for (socket, _), cpu in first_cpus.items():
        sockets.setdefault(socket, []).append(cpu)
    return sorted(map(sorted, sockets.values()))


def _devices(sections: Mapping[str, list[str]]) -> list[Device]:
    """The devices in the order of the vendor's numbers, or of their addresses if some number is unknown."""
    devices: dict[str, Device] = {}
    for line in sections.get("devices", []):
        words = line.split()
        if len(words) >= 3 and words[1] in _VENDORS and re.fullmatch("[1-9][0-9]?", words[2]):
            near = tuple(cpus(words[3])) if len(words) > 3 and re.search(CPULIST_PATTERN, words[3]) else ()
            devices[words[0].lower()] = Device(words[0].lower(), words[1], int(words[2]), near)
    # Leave out a graphics card for a screen, which may be of another vendor than the computing devices.
    counts = Counter(device.vendor for device in devices.values())
    devices = {
        address: device for address, device in devices.items() if device.vendor == counts.most_common(1)[0][0]
    }
    for order in (_nvidia_order(sections.get("nvidia", [])), _kfd_order(sections.get("kfd", []))):
        if sorted(order) == sorted(devices):
            return [devices[address] for address in order]
    return [devices[address] for address in sorted(devices)]


def _nvidia_order(lines: Sequence[str]) -> list[str]:
    return [line.split(",")[0].strip().lower()[-12:] for line in lines if ":" in line]


def _kfd_order(lines: Sequence[str]) -> list[str]:
    rows = (re.fullmatch(r"\S+ ([0-9]{1,5}) ([0-9]{1,5})", line) for line in lines)
    numbers = [(int(row[1]), int(row[2])) for row in rows if row]
    return [
        f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 31:02x}.{location & 7}"
        for domain, location in numbers
    ]


def _disk(lines: Sequence[str]) -> str | None:
    """The folder with the most free space on a disk of the node other than the one with /tmp.

    Each line has the device, the type of its file system, the free space and the folder.
    """
    rows = [row for row in (line.split(maxsplit=3) for line in lines) if len(row) == 4]
    disks = [row for row in rows if not _NOT_DISKS.fullmatch(row[1]) and ":" not in row[0]]
    usual = {device for device, *_, folder in disks if folder in ("/tmp", "/var/tmp")}
    free = [(int(row[2]), row[3]) for row in disks if row[2].isdecimal() and row[0] not in usual]
    return max(free)[1] if free else None


def merged(
    text: str,
    site: Site,
    facts: NodeFacts,
    date: str,
    remote_setup: Sequence[str] = (),
    cpu_counts: Collection[int] | None = None,
) -> Updated:
    """The text of a site's profile with the facts of a node.

    `cpu_counts`: the numbers of CPUs, cores or hardware threads, that the scheduler reports for the profile's
    nodes; None: it reports no number. `remote_setup`: setup lines that make mpiexec reach other hosts by the
    scheduler's program, which they call REMOTE_SHELL.
    """
    left: list[str] = []
    expected = len(site.node.cores) if site.node else 0
    if not facts.sockets:
        left.append(f"node: lscpu on {facts.host} reports nothing")
    elif expected not in (0, facts.cores) or not _may_have(facts.cores, cpu_counts):
        cores = expected or " or ".join(f"{count} CPUs" for count in cpu_counts or ())
        left.append(
            f"node: {facts.host} has {facts.cores} cores, and the profile's nodes have {cores}: it is "
            "another kind of node; name a queue or a constraint that leads to the right nodes"
        )
    else:
        text = _with_node(text, site.node, facts, date, left)
    if facts.disk and site.local_storage is None:
        text = put(text, ("local_storage",), facts.disk)
    text = _with_launcher(text, site, facts, remote_setup, left)
    return Updated(_with_modules(text, facts, date), left)


def _may_have(cores: int, cpu_counts: Collection[int] | None) -> bool:
    """Whether a node with so many cores has one of these numbers of CPUs, with 1, 2 or 4 threads per core."""
    return cpu_counts is None or any(cores * threads in cpu_counts for threads in (1, 2, 4))


def _with_node(text: str, node: Node | None, facts: NodeFacts, date: str, left: list[str]) -> str:
    """The text with the fields of `node`, without those that the profile inherits with the same value."""
    fields = dict(_node_fields(facts))
    if node and node.devices and "devices" not in fields and len(node.devices) != len(facts.sockets):
        if len(facts.sockets) > 1:
            left.append(
                f"node: {facts.host} has {len(facts.sockets)} sockets, and the profile has devices for "
                f"{len(node.devices)}; the node does not report which socket each device belongs to"
            )
            return text
        fields["devices"] = [node.device_count]
    if facts.memory and (node is None or node.memory is None):
        fields["memory"] = memory_words(facts.memory)
    new = {
        field: value
        for field, value in fields.items()
        if has(text, ("node", field)) or node is None or getattr(node, field) != value
    }
    for field, value in new.items():
        text = put(text, ("node", field), value)
    text = without_questions(text, "cores", but="devices")
    text = without_questions(text, "device") if facts.devices and "devices" in fields else text
    if new:
        source = node.source if node else ""
        cited = source if _SOURCE in source else f"{source}; {_SOURCE}" if source else _SOURCE
        text = put(text, ("node", "source"), cited)
        text = put(text, ("node", "date"), date)
    return text


def _node_fields(facts: NodeFacts) -> Iterator[tuple[str, Any]]:
    """The fields of `node` that the node itself reports."""
    yield "sockets", [*map(cpulist, facts.sockets)]
    devices = [(_socket_of(facts.sockets, device), device) for device in facts.devices]
    homes = [(socket, device) for socket, device in devices if socket is not None]
    if not homes or len(homes) < len(devices):  # no devices, or the socket of some is unclear
        return
    counts = [0] * len(facts.sockets)
    for socket, device in homes:
        counts[socket] += device.parts
    yield "devices", counts
    yield "device_variable", _VENDORS[facts.devices[0].vendor]
    near = [
        [core for core in facts.sockets[socket] if core in device.near]
        for socket, device in homes
        for _ in range(device.parts)
    ]
    if any(len(cores) < max(map(len, facts.sockets)) for cores in near):
        yield "device_cores", [*map(cpulist, near)]


def _socket_of(sockets: list[list[int]], device: Device) -> int | None:
    """The socket that a device is near; None if there are several or none."""
    near = [number for number, cores in enumerate(sockets) if not set(cores).isdisjoint(device.near)]
    return near[0] if len(near) == 1 else None


def _with_launcher(
    text: str, site: Site, facts: NodeFacts, remote_setup: Sequence[str], left: list[str]
) -> str:
    """The text with the node's mpiexec and its way to other hosts, if the site starts ranks by mpiexec."""
    if not LAUNCHERS[site.launcher].is_mpiexec:
        return text
    if facts.mpiexec:
        text = without_questions(text, "mpiexec")
    if facts.mpiexec and facts.mpiexec != site.launcher:
        text = put(text, ("launcher",), facts.mpiexec)
    if not facts.ssh_fails or not LAUNCHERS[facts.mpiexec or site.launcher].reaches_by_ssh:
        return text
    unreached = f"ssh from {facts.host} does not reach {', '.join(facts.reached)}"
    if not facts.has_remote_shell:
        left.append(f"{unreached}: mpiexec may not start ranks there")
    elif has(text, ("setup",)) or site.setup:
        left.append(
            f"{unreached}: mpiexec needs lines in `setup`, which the profile has already "
            "(docs/how-to/pbs.md, When mpiexec does not reach a host)"
        )
    else:
        lines = [line.replace("REMOTE_SHELL", str(facts.remote_shell)) for line in remote_setup]
        comment = f"  # mpiexec reaches hosts by the scheduler, because ssh to them is closed ({_SOURCE})"
        text = put_block(text, ("setup",), [f"setup:{comment}", "  - |-", *(f"    {line}" for line in lines)])
    return text


def without_questions(text: str, about: str, but: str = "(?!)") -> str:
    """The text without questions that match the pattern `about`, unless they match the pattern `but`."""

    def kept(question: re.Match[str]) -> str:
        is_answered = re.search(about, question[0]) and not re.search(but, question[0])
        return "" if is_answered else question[0]

    return _QUESTION_LINES.sub(kept, text)


def _with_modules(text: str, facts: NodeFacts, date: str) -> str:
    """The text with a comment at the end that lists modules which a training may need."""
    title = "# Modules of interest on "
    # Replace the comment of an earlier probe.
    text = re.sub(rf"^{title}.*\n(?:#.*\n?)*", "", text, flags=re.MULTILINE).rstrip("\n")
    modules = [module for module in facts.modules if _OF_INTEREST.search(module)][:_MODULES_SHOWN]
    if modules:
        text += f"\n\n{title}{facts.host} ({_SOURCE}, {date}); name what jobs load under example_setup:"
        text += "".join(f"\n#   {module}" for module in modules)
    return text + "\n"
