"""A picture of one node of a job: which rank has which cores and which devices. Pure, as SVG.

The picture shows what the plan decides, and says what the scheduler or the launcher decides on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from castoff.launcher.config.quantities import cpulist, cpus
from castoff.launcher.config.site_fields import Node
from castoff.launcher.planning.devices import beside
from castoff.launcher.runs.plan import Plan
from castoff.launcher.text.svg import document, group, rect, text

WIDTH = 940
"""The width of the whole picture in pixels, at which the smallest text is still readable."""
_LEFT = 20
_CELL, _CELLS_IN_A_ROW = 25, 16
_DEVICE_WIDTH, _DEVICE_HEIGHT, _DEVICES_IN_A_ROW = 70, 46, 6
_DEVICES_AT = _LEFT + _CELLS_IN_A_ROW * _CELL + 60
_GAP = 4

_Owners = Mapping[int, Sequence[int]]
"""The local ranks that have each core, or each device."""


class _Part(msgspec.Struct, frozen=True):
    """Cores that are drawn together, and the devices near them."""

    name: str
    cores: list[int]
    devices: list[int]


def picture(plan: Plan, node: Node | None) -> str:
    """Draw the first node of a job, as an SVG document of `WIDTH` pixels.

    plan: the job on its site.
    node: the site's topology of a node; None, or one without cores: the ranks alone are drawn.
    """
    ranks = plan.layout[0][0] if plan.layout else 1
    cores = _owners(_cores(plan, node), ranks)
    devices = _owners(_devices(plan, node, ranks), ranks)
    reserved = cpus(node.reserved_cores) if node and node.reserved_cores else []
    lines, below = [*_heading(plan, ranks)], 76
    for part in _parts(node):
        lines.append(text(_LEFT, below, part.name))
        rows = _grid(part.cores, _LEFT, below + 8, (_CELL, _CELL), _CELLS_IN_A_ROW)
        for core, x, y in rows:
            lines.append(_core(core, x, y, cores.get(core, ()), ranks, core in reserved))
        boxes = _grid(
            part.devices, _DEVICES_AT, below + 8, (_DEVICE_WIDTH, _DEVICE_HEIGHT), _DEVICES_IN_A_ROW
        )
        for device, x, y in boxes:
            lines.append(_large(f"device {device}", x, y, devices.get(device, ()), ranks))
        ends = [y + _CELL for *_, y in rows] + [y + _DEVICE_HEIGHT for *_, y in boxes]
        below = max(ends) + 28
    if below == 76:
        boxes = _grid(range(ranks), _LEFT, below, (_DEVICE_WIDTH, _DEVICE_HEIGHT), 12)
        lines += [_large("", x, y, [rank], ranks) for rank, x, y in boxes]
        below = boxes[-1][2] + _DEVICE_HEIGHT + 28
    for words in _notes(plan, node, cores, devices):
        lines.append(text(_LEFT, below, words))
        below += 20
    return document(WIDTH, below, f"{plan.name} on {plan.site}: {_words(cores, devices, ranks)}", lines)


def _cores(plan: Plan, node: Node | None) -> list[Sequence[int]]:
    """Return the physical cores of each local rank; empty if castoff does not choose them."""
    listed = [cpus(cpu_list) for cpu_list in plan.cpu_lists]
    return [sorted(node.cores_of(own)) for own in listed] if node else [*listed]


def _devices(plan: Plan, node: Node | None, ranks: int) -> list[Sequence[int]]:
    """Return the devices of each local rank, by their numbers on the node; empty if they are known only in
    the job.
    """
    given, each = plan.devices, plan.devices_per_rank
    if not each:
        return []
    if given.per_rank:
        return [[int(number) for number in mask.split(",")] for mask in given.per_rank]
    if given.step:
        masked = given.visible.split(",") if given.visible else range(plan.devices_per_node)
        shown = [int(number) for number in masked]
        return [shown[rank * given.step :][:each] for rank in range(ranks)]
    if node and plan.cpu_lists:  # the launcher gives each rank the devices near its cores
        return [*beside(node, _cores(plan, node), each)]
    return []


def _owners(own: Sequence[Sequence[int]], ranks: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for rank, numbers in enumerate(own[:ranks]):
        for number in numbers:
            found.setdefault(number, []).append(rank)
    return found


def _parts(node: Node | None) -> Iterator[_Part]:
    """Return the parts of a node: its sockets, or groups of a socket's cores that are near different
    devices.
    """
    if not node or not node.sockets:
        return
    if node.device_cores:
        groups: dict[str, list[int]] = {}
        for number, listed in enumerate(node.device_cores):
            groups.setdefault(listed, []).append(number)
        for listed in sorted(groups, key=lambda one: min(cpus(one))):
            yield _Part(f"cores {listed}", cpus(listed), groups[listed])
        held = {core for listed in groups for core in cpus(listed)}
        if rest := [core for core in node.cores if core not in held]:
            yield _Part(f"cores {cpulist(rest)}", rest, [])
        return
    first = 0
    for number, listed in enumerate(node.sockets):
        count = node.devices[number] if number < len(node.devices) else 0
        yield _Part(f"socket {number}: cores {listed}", cpus(listed), [*range(first, first + count)])
        first += count


def _grid(
    numbers: Sequence[int], left: int, top: int, size: tuple[int, int], in_a_row: int
) -> list[tuple[int, int, int]]:
    """Yield numbers with the positions of their boxes."""
    width, height = size
    return [
        (number, left + at % in_a_row * width, top + at // in_a_row * height)
        for at, number in enumerate(numbers)
    ]


def _core(core: int, x: int, y: int, own: Sequence[int], ranks: int, reserved: bool) -> str:
    words = cpulist(own) if len(own) < 3 else f"{own[0]}…{own[-1]}"
    what = _named(own) or ("reserved for the system" if reserved else "no rank")
    size = _CELL - _GAP
    parts = _coloured(x, y, (size, size), own, ranks, "dark" if reserved else "none")
    parts.append(text(x + size / 2, y + size / 2 + 4, words, "small ink", "middle"))
    return group(f"core {core}: {what}", parts)


def _large(name: str, x: int, y: int, own: Sequence[int], ranks: int) -> str:
    size = _DEVICE_WIDTH - _GAP, _DEVICE_HEIGHT - _GAP
    kind, middle = "small ink" if own else "small", x + size[0] / 2
    parts = _coloured(x, y, size, own, ranks, "none")
    lines = [name, _named(own) or "no rank"] if name else [_named(own)]
    for at, words in enumerate(lines):
        parts.append(text(middle, y + 25 + 16 * at - 8 * (len(lines) - 1), words, kind, "middle"))
    return group(": ".join(lines), parts)


def _coloured(x: int, y: int, size: tuple[int, int], own: Sequence[int], ranks: int, kind: str) -> list[str]:
    """Return a box in the colours of its ranks, side by side if there are several. `kind`: the colour of a
    box without ranks.
    """
    width, height = size
    share = width / max(len(own), 1)
    return [
        rect(
            *(x + at * share, y, share, height),
            fill=f"hsl({rank * 360 // ranks} {70 - rank % 2 * 25}% {68 + rank % 3 * 5}%)",
        )
        for at, rank in enumerate(own)
    ] or [rect(x, y, width, height, kind=kind)]


def _heading(plan: Plan, ranks: int) -> Iterator[str]:
    which = f"one of its {plan.nodes} nodes" if plan.nodes > 1 else "its node"
    yield text(_LEFT, 30, f"{plan.name} on {plan.site}: {which}", "title")
    has = f"{ranks} ranks" if ranks > 1 else "1 rank"
    yield text(_LEFT, 50, f"{has}, started by {plan.launcher}. Numbers are local ranks.")


def _notes(plan: Plan, node: Node | None, cores: _Owners, devices: _Owners) -> Iterator[str]:
    """Return notes on what the picture cannot show."""
    if not cores:
        yield "Cores: chosen on the node, by the scheduler or the launcher."
    if plan.devices_per_rank and not devices:
        yield f"Devices: {plan.devices_per_rank} for each rank, chosen on the node."
    if node and node.reserved_cores:
        yield f"Dark grey: cores {node.reserved_cores}, reserved for the system."


def _words(cores: _Owners, devices: _Owners, ranks: int) -> str:
    """Return a description of the picture for readers who cannot see it."""
    said = []
    for rank in range(ranks):
        own = cpulist(sorted(core for core, of in cores.items() if rank in of))
        near = cpulist(sorted(number for number, of in devices.items() if rank in of))
        has = [f"cores {own}"] * bool(own) + [f"device {near}"] * bool(near)
        said.append(f"local rank {rank}" + (f" has {' and '.join(has)}" if has else ""))
    return "; ".join(said)


def _named(own: Sequence[int]) -> str:
    return f"rank{'s' * (len(own) > 1)} {cpulist(own)}" if own else ""
