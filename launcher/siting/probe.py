"""What a node reported to `castoff sites probe`, and a profile with it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.config.quantities import CPULIST_PATTERN, cpulist, cpus
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import printable
from castoff.launcher.launchers.commands import LAUNCHERS, named_by
from castoff.launcher.schedulers.machine_info import memory_words
from castoff.launcher.siting.lines import QUESTION
from castoff.launcher.siting.update import Updated
from castoff.launcher.typed.editing import has, put, put_block

_SOURCE = "castoff sites probe"

_VENDORS = {
    "0x10de": "CUDA_VISIBLE_DEVICES",
    "0x1002": "ROCR_VISIBLE_DEVICES",
    "0x8086": "ZE_AFFINITY_MASK",
}
"""What limits a process to some devices, by who makes them as PCI numbers makers."""

_NOT_DISKS = (
    "tmpfs",
    "devtmpfs",
    "overlay",
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "fuse",
    "ceph",
    "autofs",
)

_OF_INTEREST = re.compile(r"torch|conda|python|frameworks|cuda|rocm|nccl|rccl|oneapi|mpi", re.IGNORECASE)
_MODULES_SHOWN = 40


class Device(NamedTuple):
    """A device as PCI has it."""

    address: str
    vendor: str
    parts: int
    """Devices of ours that it is: tiles."""
    near: tuple[int, ...]
    """The CPUs beside it."""


class NodeFacts(NamedTuple):
    """What a node has."""

    host: str
    sockets: list[list[int]]
    """The first CPU of each core."""
    memory: int | None
    """MiB."""
    devices: list[Device]
    """By their numbers."""
    disk: str | None
    """A folder on a disk of its own that is not /tmp."""
    mpiexec: LauncherName | None
    """The flavour of the one on PATH."""
    modules: list[str]
    reached: Mapping[str, list[str]]
    """The other hosts of the job, and how each was reached: by ssh, by the scheduler's own means."""
    remote_shell: str | None
    """The program that is the scheduler's own means."""
    whole: bool
    """Whether it came to its end."""

    @property
    def cores(self) -> int:
        """Physical ones."""
        return sum(map(len, self.sockets))

    def words(self) -> str:
        """What it has, in a line."""
        said = [
            f"{len(self.sockets)} sockets" if len(self.sockets) != 1 else "1 socket",
            f"{self.cores} cores",
        ]
        said += [f"{len(self.devices) or 'no'} devices on its PCI bus"]
        said += [f"disk {self.disk}"] if self.disk else []
        said += [f"mpiexec of {self.mpiexec}"] if self.mpiexec else []
        if self.reached:
            said.append("ssh to another host is " + ("closed" if self.closed else "open"))
        return ", ".join(said)

    @property
    def closed(self) -> bool:
        """Whether a host was not reached by ssh."""
        return any("ssh" not in ways for ways in self.reached.values())

    @property
    def opens(self) -> bool:
        """Whether the scheduler's own means reaches every host."""
        return bool(self.remote_shell) and all("remote" in ways for ways in self.reached.values())


def parse(text: str) -> NodeFacts:
    """What `probe.sh` has written; whatever is missing or odd is not known."""
    parts: dict[str, list[str]] = {}
    held: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            held = parts.setdefault(line[3:].strip(), [])
        else:
            held.append(line.strip())
    memory = re.search(r"MemTotal:\s*(\d+) kB", "\n".join(parts.get("memory", [])))
    says = " ".join(line for line in parts.get("mpiexec", []) if not line.startswith("/"))  # but its path
    return NodeFacts(
        host=printable(next(iter(parts.get("host", [])), "a node")),
        sockets=_sockets(parts.get("cpus", [])),
        memory=int(memory[1]) // 1024 if memory else None,
        devices=_devices(parts),
        disk=_disk(parts.get("disks", [])),
        mpiexec=named_by(says),
        modules=[printable(line) for line in parts.get("modules", []) if line and not line.endswith(":")],
        reached={name[6:]: ways for name, ways in parts.items() if name.startswith("reach ")},
        remote_shell=next((one for one in parts.get("remote", []) if re.fullmatch(r"/[\w./+-]+", one)), None),
        whole="end" in parts,
    )


def _sockets(lines: Sequence[str]) -> list[list[int]]:
    """Of each socket the first CPU of every core: `CPU,core,socket,node` a line."""
    firsts: dict[tuple[str, str], int] = {}
    for line in lines:
        if found := re.match(r"([0-9]{1,4}),([0-9]{1,4}),([0-9]{0,4})(?:,|$)", line):
            core = (found[3] or "0", found[2])
            firsts[core] = min(int(found[1]), firsts.get(core, 1 << 30))
    found_sockets: dict[str, list[int]] = {}
    for (socket, _), cpu in firsts.items():
        found_sockets.setdefault(socket, []).append(cpu)
    return sorted(sorted(one) for one in found_sockets.values())


def _devices(parts: Mapping[str, list[str]]) -> list[Device]:
    """In the order of the vendor's own numbers, where that is known of all; else of their addresses."""
    found: dict[str, Device] = {}
    for line in parts.get("devices", []):
        words = line.split()
        if len(words) >= 3 and words[1] in _VENDORS and re.fullmatch("[1-9][0-9]?", words[2]):
            near = tuple(cpus(words[3])) if len(words) > 3 and re.search(CPULIST_PATTERN, words[3]) else ()
            found[words[0].lower()] = Device(words[0].lower(), words[1], int(words[2]), near)
    vendors = {one.vendor for one in found.values()}
    if len(vendors) > 1:  # a small one for a screen beside those that compute
        most = max(vendors, key=lambda vendor: sum(one.vendor == vendor for one in found.values()))
        found = {address: one for address, one in found.items() if one.vendor == most}
    for order in (_of_nvidia(parts.get("nvidia", [])), _of_kfd(parts.get("kfd", []))):
        if sorted(order) == sorted(found):
            return [found[address] for address in order]
    return [found[address] for address in sorted(found)]


def _of_nvidia(lines: Sequence[str]) -> list[str]:
    return [line.split(",")[0].strip().lower()[-12:] for line in lines if ":" in line]


def _of_kfd(lines: Sequence[str]) -> list[str]:
    found = (re.fullmatch(r"\S+ ([0-9]{1,5}) ([0-9]{1,5})", line) for line in lines)
    numbers = [(int(one[1]), int(one[2])) for one in found if one]
    return [f"{domain:04x}:{at >> 8:02x}:{at >> 3 & 31:02x}.{at & 7}" for domain, at in numbers]


def _disk(lines: Sequence[str]) -> str | None:
    """The largest of the folders on a disk of the node's that is not where /tmp is."""
    found = [line.split(maxsplit=3) for line in lines]
    rows = [one for one in found if len(one) == 4 and one[1] not in _NOT_DISKS and ":" not in one[0]]
    usual = {device for device, *_, at in rows if at in ("/tmp", "/var/tmp")}
    own = [(int(free), at) for device, _, free, at in rows if free.isdecimal() and device not in usual]
    return max(own)[1] if own else None


def merged(
    text: str,
    site: Site,
    facts: NodeFacts,
    date: str,
    remote_setup: Sequence[str] = (),
    cpus_there: Collection[int] | None = None,
) -> Updated:
    """The text of a site's own profile with what a node said.

    `cpus_there`: how many CPUs the profile's nodes may have, which may be cores or hardware threads, as the
    scheduler says; None: nobody says.
    `remote_setup`: the lines that have mpiexec reach other hosts by the scheduler's means, whose program they
    call REMOTE_SHELL.
    """
    left: list[str] = []
    expected = sum(len(cpus(one)) for one in site.node.sockets) if site.node else 0
    if not facts.sockets:
        left.append(f"node: lscpu on {facts.host} says nothing")
    elif expected not in (0, facts.cores) or not _may_be(facts, cpus_there):
        there = expected or " or ".join(f"{one} CPUs" for one in cpus_there or ())
        left.append(
            f"node: {facts.host} has {facts.cores} cores, and the profile's nodes have {there}: it is one "
            "of another kind; name a queue or a constraint that leads to the right ones"
        )
    else:
        text = _with_node(text, site.node, facts, date, left)
    if facts.disk and site.local_storage is None:
        text = put(text, ("local_storage",), json.dumps(facts.disk, ensure_ascii=False))
    text = _starting(text, site, facts, remote_setup, left)
    return Updated(_with_modules(text, facts, date), left)


def _may_be(facts: NodeFacts, cpus_there: Collection[int] | None) -> bool:
    return cpus_there is None or any(facts.cores * each in cpus_there for each in (1, 2, 4))


def _with_node(text: str, node: Node | None, facts: NodeFacts, date: str, left: list[str]) -> str:
    """The text with the fields of `node`; what the profile inherits as it is here is not repeated."""
    fields: dict[str, list[str] | list[int] | str] = dict(_node(facts))
    if node and node.devices and "devices" not in fields and len(node.devices) != len(facts.sockets):
        if len(facts.sockets) > 1:
            left.append(
                f"node: {facts.host} has {len(facts.sockets)} sockets, and the profile's devices are of "
                f"{len(node.devices)}; it does not say which are whose"
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
        text = put(text, ("node", field), value if isinstance(value, str) else json.dumps(value))
    text = answered(text, "cores", but="devices")
    text = answered(text, "device") if facts.devices and "devices" in fields else text
    if new:
        source = node.source if node else ""
        cited = source if _SOURCE in source else f"{source}; {_SOURCE}" if source else _SOURCE
        text = put(text, ("node", "source"), json.dumps(cited, ensure_ascii=False))
        text = put(text, ("node", "date"), date)
    return text


def _node(facts: NodeFacts) -> Iterator[tuple[str, list[str] | list[int] | str]]:
    """The fields of `node`."""
    yield "sockets", [*map(cpulist, facts.sockets)]
    if not facts.devices:
        return
    homes = [_home(facts.sockets, one) for one in facts.devices]
    numbers = [0] * len(facts.sockets)
    for home, one in zip(homes, facts.devices, strict=True):
        if home is None:
            return  # beside several sockets, or none that is known
        numbers[home] += one.parts
    yield "devices", numbers
    yield "device_variable", _VENDORS[facts.devices[0].vendor]
    near = [
        [core for core in facts.sockets[home] if core in one.near]
        for home, one in zip(homes, facts.devices, strict=True)
        if home is not None
        for _ in range(one.parts)
    ]
    if any(len(cores) < max(map(len, facts.sockets)) for cores in near):
        yield "device_cores", [*map(cpulist, near)]


def _home(sockets: list[list[int]], device: Device) -> int | None:
    at = [number for number, cores in enumerate(sockets) if not set(cores).isdisjoint(device.near)]
    return at[0] if len(at) == 1 else None


def _starting(text: str, site: Site, facts: NodeFacts, remote_setup: Sequence[str], left: list[str]) -> str:
    """How mpiexec reaches other hosts, where the site has one."""
    if not LAUNCHERS[site.launcher].is_mpiexec:
        return text
    if facts.mpiexec:
        text = answered(text, "mpiexec")
    if facts.mpiexec and facts.mpiexec != site.launcher:
        text = put(text, ("launcher",), facts.mpiexec)
    if not facts.closed or not LAUNCHERS[facts.mpiexec or site.launcher].reaches_by_ssh:
        return text
    if not facts.opens:
        left.append(
            f"ssh from {facts.host} does not reach {', '.join(facts.reached)}: mpiexec may not start "
            "ranks there"
        )
    elif has(text, ("setup",)) or site.setup:
        left.append(
            f"ssh from {facts.host} does not reach {', '.join(facts.reached)}: mpiexec needs lines in "
            "`setup`, "
            "which the profile has already (docs/how-to/pbs.md, When mpiexec does not reach a host)"
        )
    else:
        lines = [line.replace("REMOTE_SHELL", str(facts.remote_shell)) for line in remote_setup]
        comment = f"  # mpiexec reaches hosts by the scheduler: ssh to them is closed ({_SOURCE})"
        text = put_block(text, ("setup",), [f"setup:{comment}", "  - |-", *(f"    {line}" for line in lines)])
    return text


def answered(text: str, about: str, but: str = "(?!)") -> str:
    """The text without the questions that hold a pattern `about` and none that they are not to hold."""
    lines = text.split("\n")
    kept: list[str] = []
    at = 0
    while at < len(lines):
        end = at + 1
        if lines[at].lstrip().startswith(QUESTION):
            while end < len(lines) and lines[end].lstrip().startswith("#   "):
                end += 1
            question = " ".join(lines[at:end])
            if re.search(about, question) and not re.search(but, question):
                at = end
                continue
        kept += lines[at:end]
        at = end
    return "\n".join(kept)


def _with_modules(text: str, facts: NodeFacts, date: str) -> str:
    """The modules that a training may want, as a comment at the end."""
    head = "# Modules of interest on "
    lines = text.rstrip("\n").split("\n")
    if any(line.startswith(head) for line in lines):  # of an earlier time
        at = next(number for number, line in enumerate(lines) if line.startswith(head))
        end = next((n for n in range(at, len(lines)) if not lines[n].startswith("#")), len(lines))
        lines = "\n".join([*lines[:at], *lines[end:]]).rstrip("\n").split("\n")
    chosen = [one for one in facts.modules if _OF_INTEREST.search(one)][:_MODULES_SHOWN]
    if chosen:
        lines += ["", f"{head}{facts.host} ({_SOURCE}, {date}); name what jobs load under example_setup:"]
        lines += [f"#   {one}" for one in chosen]
    return "\n".join(lines).rstrip("\n") + "\n"
