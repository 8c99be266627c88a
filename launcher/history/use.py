"""What a job uses over time on each node, from the samples of templates/nodes/use.py.

Each node has a file in the attempt's folder: a line of facts, then a line for each few seconds or minutes.
Any line may be cut short, by a full disk or because it is being written.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Bytes, Number, Seconds
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.text.words import counted, size_words

FOLDER = "use"
"""The name of the folder with these files, in an attempt's folder."""

NODES = 16
"""The maximum number of nodes that are read, evenly spaced."""

_LARGEST = 4 << 20
"""Bytes to read of a file; a week's samples with eight devices take a seventh of it."""

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class Device(msgspec.Struct, frozen=True):
    """A GPU that the job may use."""

    name: str = ""
    mem: Bytes = 0
    """The bytes of its memory; 0: not known."""


class Node(msgspec.Struct, frozen=True):
    """The first line of a file: the node, and how the job was measured there."""

    host: str
    by: str = ""
    """`cgroup`, the job's control group, or `processes`, those of the attempt."""
    node_cpus: Number | None = None
    """The hardware threads of the node."""
    node_mem: Bytes | None = None
    limit: Bytes | None = None
    """The memory that the job may hold there."""
    gpus: Sequence[Device] = ()


class Sample(msgspec.Struct, frozen=True):
    """Another line: means over the time since the line before, and the most memory in it."""

    t: Seconds
    """When it was written, in seconds since the epoch."""
    dt: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    """The seconds since the line before."""
    cpu: _Amount
    """The CPUs that the job kept busy."""
    mem: Bytes
    cpus: Number = 0
    """The hardware threads that the job may use; 0: not known."""
    read: _Amount = 0.0
    write: _Amount = 0.0
    """Bytes per second that the job's processes moved from and to storage."""
    rx: _Amount = 0.0
    tx: _Amount = 0.0
    """Bytes per second that the node received and sent, whichever job they were for."""
    gpu: Sequence[Fraction | None] = ()
    """The fraction of the time in which each device computed."""
    gpu_mem: Sequence[Bytes | None] = ()


class NodeSamples(NamedTuple):
    """The samples of one node, in order."""

    node: Node
    samples: Sequence[Sample]


class DeviceUse(msgspec.Struct, frozen=True):
    """What one GPU did, on average."""

    host: str
    name: str
    use: float | None
    """The fraction of the time in which it computed."""
    memory: int | None
    """The most bytes in use."""
    total: int
    """The bytes of its memory; 0: not known."""


class NodeUse(msgspec.Struct, frozen=True):
    """What a job used on one node, on average."""

    host: str
    seconds: float
    """The time that was measured."""
    cpu: float
    """The CPUs that it kept busy."""
    cpus: int
    """The hardware threads that it might use; 0: not known."""
    node_cpus: int | None
    memory: int
    """The most bytes that it held."""
    limit: int | None
    """The bytes that it might hold; None: as many as the node has."""
    node_memory: int | None
    read: float
    write: float
    received: float
    sent: float
    devices: Sequence[DeviceUse] = ()


class Use(msgspec.Struct, frozen=True):
    """What an attempt used on its nodes."""

    nodes: Sequence[NodeUse]
    of: int
    """The number of nodes that recorded samples; more than `nodes` if only some were read."""

    @property
    def seconds(self) -> float:
        """The time that was measured."""
        return max(node.seconds for node in self.nodes)

    @property
    def devices(self) -> list[DeviceUse]:
        """The GPUs of all nodes."""
        return [device for node in self.nodes for device in node.devices]

    @property
    def device_use(self) -> float | None:
        """The mean fraction of the time in which the GPUs computed."""
        known = [device.use for device in self.devices if device.use is not None]
        return sum(known) / len(known) if known else None


def parse(data: bytes) -> NodeSamples | None:
    """The samples in a file's text, without lines that are no samples; None if nothing is said of the node.

    The facts of a node come again with more devices, at the end of the list, once other ranks are shown them.
    """
    node, samples = None, []
    for line in data.split(b"\n"):
        if sample := _decoded(line, Sample):
            samples.append(sample)
        elif facts := _decoded(line, Node):
            node = facts
    return None if node is None else NodeSamples(node, samples)


_Line = TypeVar("_Line", bound=msgspec.Struct)


def _decoded(line: bytes, kind: type[_Line]) -> _Line | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def samples_of(run: RunDirectory, member: int, attempt: int, most: int = NODES) -> list[NodeSamples]:
    """The samples of at most so many nodes of an attempt.

    Raises:
        CastoffError: a file cannot be read.
    """
    paths, _ = _files(run, member, attempt, most)
    found = (parse(_text(path)) for path in paths)
    return [one for one in found if one is not None and one.samples]


def use_of(run: RunDirectory, member: int, attempt: int) -> Use | None:
    """What an attempt used; None if it recorded nothing.

    Raises:
        CastoffError: a file cannot be read.
    """
    paths, count = _files(run, member, attempt, NODES)
    found = []
    for path in paths:
        try:
            about = path.stat()
        except OSError:  # just removed
            continue
        if (node := _use_in(path, about.st_size, about.st_mtime_ns)) is not None:
            found.append(node)
    return Use(found, count) if found else None


def _files(run: RunDirectory, member: int, attempt: int, most: int) -> tuple[list[Path], int]:
    """The files of at most so many nodes, evenly spaced, and the number of all files."""
    folder = run.path / "attempts" / f"{member}.{attempt}" / FOLDER
    names = sorted(name for name in names_in(folder) if name.startswith("node-") and name.endswith(".jsonl"))
    step = max(len(names) / most, 1)
    return [folder / names[int(index * step)] for index in range(min(most, len(names)))], len(names)


def _text(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_LARGEST)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error


@functools.lru_cache(maxsize=512)
def _use_in(path: Path, size: int, changed: int) -> NodeUse | None:
    """What one file says; `size` and `changed` tell whether it was read before."""
    found = parse(_text(path))
    return summarised(found) if found and found.samples else None


def summarised(one: NodeSamples) -> NodeUse:
    """The means over all samples of a node."""
    node, samples = one
    seconds = sum(sample.dt for sample in samples)

    def mean(values: Iterable[float]) -> float:
        return sum(value * sample.dt for value, sample in zip(values, samples, strict=True)) / seconds

    return NodeUse(
        host=node.host,
        seconds=seconds,
        cpu=mean(sample.cpu for sample in samples),
        cpus=max(sample.cpus for sample in samples),
        node_cpus=node.node_cpus,
        memory=max(sample.mem for sample in samples),
        limit=node.limit,
        node_memory=node.node_mem,
        read=mean(sample.read for sample in samples),
        write=mean(sample.write for sample in samples),
        received=mean(sample.rx for sample in samples),
        sent=mean(sample.tx for sample in samples),
        devices=[_device(index, node, samples) for index in range(len(node.gpus))],
    )


def _device(index: int, node: Node, samples: Sequence[Sample]) -> DeviceUse:
    timed = [(one.gpu[index], one.dt) for one in samples if index < len(one.gpu)]
    known = [(use, seconds) for use, seconds in timed if use is not None]
    held = [memory for one in samples for memory in one.gpu_mem[index : index + 1] if memory is not None]
    return DeviceUse(
        host=node.host,
        name=node.gpus[index].name,
        use=sum(use * seconds for use, seconds in known) / sum(seconds for _, seconds in known)
        if known
        else None,
        memory=max(held, default=None),
        total=node.gpus[index].mem,
    )


def use_words(use: Use, data_wait: float | None = None) -> str:
    """What a job used, in one line: `GPU 34%, waiting for data 41%, 2.1 of 8 CPUs, memory 5.2 GiB`.

    `data_wait`: the fraction of the time in which the program waits for data, if it reports that.
    """
    parts = []
    devices = use.devices
    if devices:
        parts.append(_devices_words(devices, use.device_use))
    if data_wait is not None:
        parts.append(f"waiting for data {data_wait:.0%}")
    cpus = sum(node.cpus for node in use.nodes)
    busy = f"{sum(node.cpu for node in use.nodes):.1f}"
    parts.append(f"{busy} of {counted(cpus, 'CPU')}" if cpus else f"{busy} CPUs")
    parts.append(_memory_words(use.nodes))
    if len(use.nodes) < use.of:
        parts.append(f"on {len(use.nodes)} of {counted(use.of, 'node')}")
    elif use.of > 1:
        parts[-1] += " on the fullest node"
    return ", ".join(parts)


def average_words(nodes: Sequence[NodeUse], members: int) -> str:
    """What each of so many members used on average, in one line, and the most memory on a node; `nodes`:
    those of all members.
    """
    parts, use = [], Use(nodes, len(nodes))
    if devices := use.devices:
        parts.append(_devices_words(devices, use.device_use, members))
    busy, cpus = sum(one.cpu for one in nodes) / members, sum(one.cpus for one in nodes) / members
    of = f" of {cpus:.3g}" if cpus else ""
    parts.append(f"{busy:.1f}{of} CPU{'' if cpus == 1 else 's'}")
    parts.append(_memory_words(nodes))
    return ", ".join(parts)


def _memory_words(nodes: Sequence[NodeUse]) -> str:
    """The memory on the node with the most."""
    fullest = max(nodes, key=lambda node: node.memory)
    most = fullest.limit or fullest.node_memory
    return f"memory {size_words(fullest.memory)}" + (f" of {size_words(most)}" if most else "")


def _devices_words(devices: Sequence[DeviceUse], mean: float | None, members: int = 1) -> str:
    words = "GPU" if len(devices) == members else f"{len(devices) / members:.3g} GPUs"
    if mean is not None:
        words += f" {mean:.0%}"
    held = [device for device in devices if device.memory is not None]
    if not held:
        return words
    fullest = max(held, key=lambda device: device.memory or 0)
    total = f" of {size_words(fullest.total)}" if fullest.total else ""
    return f"{words} with {size_words(fullest.memory or 0)}{total}"
