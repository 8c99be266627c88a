"""What an attempt used on each node: a table, and curves over time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from castoff.launcher.history.use import DeviceUse, NodeSamples, NodeUse, Sample, Use
from castoff.launcher.report.cells import Table, table
from castoff.launcher.report.curves import Plot, curve
from castoff.launcher.report.results import Column
from castoff.launcher.text.words import size_words

DRAWN_NODES = 8
"""The maximum number of nodes with curves: as many as colours can distinguish."""

_POINTS = 400
"""The maximum number of points of a curve."""

_GIB, _MB = 1 << 30, 1e6

_Value = Callable[[Sample], float | None]


def use_table(use: Use) -> Table:
    """A row for each node."""
    headings = ("node", "CPUs", "memory", "GPUs", "GPU memory", "read", "written", "received", "sent")
    left_out = use.of - len(use.nodes)
    shown = table("Means of the whole time, and most memory", headings, [_row(node) for node in use.nodes])
    return shown._replace(note=f"{left_out:,} more nodes are left out" if left_out else "")


def _row(node: NodeUse) -> Sequence[str]:
    most = node.limit or node.node_memory
    rates = (node.read, node.write, node.received, node.sent)
    return (
        node.host,
        f"{node.cpu:.1f} of {node.cpus}" if node.cpus else f"{node.cpu:.1f}",
        size_words(node.memory) + (f" of {size_words(most)}" if most else ""),
        ", ".join("?" if one.use is None else f"{one.use:.0%}" for one in node.devices),
        ", ".join(map(_device_memory, node.devices)),
        *(f"{size_words(int(rate))}/s" if rate >= 1 else "" for rate in rates),
    )


def _device_memory(one: DeviceUse) -> str:
    if one.memory is None:
        return "?"
    return size_words(one.memory) + (f" of {size_words(one.total)}" if one.total else "")


def use_plots(nodes: Sequence[NodeSamples], began: float) -> list[Plot]:
    """Curves over the minutes since `began`, in seconds since the epoch."""
    several = len(nodes) > 1
    wanted: list[tuple[str, Iterator[tuple[str, NodeSamples, _Value]]]] = [
        ("GPUs: part of the time in which they computed", _of_devices(nodes, _computed)),
        ("GPUs: memory in GiB", _of_devices(nodes, _held)),
        ("CPUs kept busy", _of_nodes(nodes, lambda one: one.cpu)),
        ("Memory in GiB", _of_nodes(nodes, lambda one: one.mem / _GIB)),
        ("Storage, read and written in MB/s", _of_nodes(nodes, lambda one: (one.read + one.write) / _MB)),
        ("Network of the node, in MB/s", _of_nodes(nodes, lambda one: (one.rx + one.tx) / _MB)),
    ]
    plots = []
    for title, curves in wanted:
        drawn = [(label, _column(node, value, began)) for label, node, value in curves]
        if any(value for _, column in drawn for value in column.values):
            shown = [curve(label, column, _POINTS) for label, column in drawn if column.values]
            plots.append(Plot(title + (" on each node" if several else ""), shown, axis="minute"))
    return plots


def _of_nodes(nodes: Sequence[NodeSamples], value: _Value) -> Iterator[tuple[str, NodeSamples, _Value]]:
    for node in nodes:
        yield node.node.host, node, value


def _of_devices(
    nodes: Sequence[NodeSamples], value: Callable[[Sample, int], float | None]
) -> Iterator[tuple[str, NodeSamples, _Value]]:
    """A curve for each GPU of the only node; for several nodes, the mean over those of each."""
    if len(nodes) == 1:
        (node,) = nodes
        for index in range(len(node.node.gpus)):
            yield f"GPU {index}", node, lambda one, index=index: value(one, index)  # type: ignore[misc]
        return
    for node in nodes:
        if count := len(node.node.gpus):
            yield node.node.host, node, lambda one, count=count: _mean(value(one, at) for at in range(count))  # type: ignore[misc]


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _computed(one: Sample, index: int) -> float | None:
    return one.gpu[index] if index < len(one.gpu) else None


def _held(one: Sample, index: int) -> float | None:
    held = one.gpu_mem[index] if index < len(one.gpu_mem) else None
    return None if held is None else held / _GIB


def _column(node: NodeSamples, value: _Value, began: float) -> Column:
    found = [(round((one.t - began) / 60, 2), value(one)) for one in node.samples]
    known = [(minute, one) for minute, one in found if one is not None]
    return Column([minute for minute, _ in known], [one for _, one in known])
