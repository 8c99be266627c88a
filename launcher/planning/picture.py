"""A picture of one node of a job: which rank has which cores and which devices. Pure, as SVG.

It shows what the plan decides. Where the scheduler or the launcher decides on the host, it says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

import msgspec

from launcher.config.quantities import cpulist, cpus
from launcher.config.site_fields import Node
from launcher.planning.devices import beside
from launcher.runs.plan import Plan

WIDTH = 940
"""Pixels of the whole picture, at which its smallest text is still readable."""
_CELL, _GAP = 22, 3
_IN_A_ROW = 16
_DEVICE = (64, 40)
_LEFT = 20
_DEVICES_AT = _LEFT + _IN_A_ROW * (_CELL + _GAP) + 60

_STYLE = """
  .page { fill: #ffffff; stroke: #d0d7de }
  text { font-family: system-ui, sans-serif; fill: #1f2328; font-size: 13px }
  .small { font-size: 10px; text-anchor: middle }
  .title { font-size: 16px; font-weight: 600 }
  .idle { fill: #eaeef2 }
  .reserved { fill: #afb8c1 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #15191f; stroke: #3d444d }
    text { fill: #e6edf3 }
    .used { fill: #0d1117 }
    .idle { fill: #2a313c }
    .reserved { fill: #59636e }
  }
"""


class _Part(msgspec.Struct, frozen=True):
    """Cores that stand together in the picture, and the devices beside them."""

    name: str
    cores: list[int]
    devices: list[int]


def picture(plan: Plan, node: Node | None) -> str:
    """The first node of a job, as an SVG document of `WIDTH` pixels.

    plan: the job on its site.
    node: the site's topology of a node; None, or one without cores: the ranks alone are drawn.
    """
    ranks = plan.layout[0][0] if plan.layout else 1
    cores, devices = _cores(plan, node, ranks), _devices(plan, node, ranks)
    lines, below = [*_heading(plan, ranks)], 74
    for part in _parts(plan, node):
        drawn, below = _drawn(part, below, cores, devices, ranks, node)
        lines += drawn
    if not (node and node.sockets):
        drawn, below = _ranks_alone(below, ranks)
        lines += drawn
    for words in _notes(plan, node, cores, devices):
        lines.append(_text(_LEFT, below + 8, words))
        below += 20
    return _document(f"{plan.name} on {plan.site}: {_words(cores, devices, ranks)}", below + 12, lines)


def _cores(plan: Plan, node: Node | None, ranks: int) -> dict[int, list[int]]:
    """The ranks of each physical core that the plan gives to any."""
    of: dict[int, list[int]] = {}
    for rank, listed in enumerate(plan.cpu_lists[:ranks]):
        for core in sorted(node.cores_of(cpus(listed)) if node else cpus(listed)):
            of.setdefault(core, []).append(rank)
    return of


def _devices(plan: Plan, node: Node | None, ranks: int) -> dict[int, list[int]]:
    """The ranks of each device of a node."""
    given = plan.devices
    if not plan.devices_per_rank:
        return {}
    own: Sequence[Sequence[int]]
    if given.per_rank:
        own = [[int(number) for number in mask.split(",")] for mask in given.per_rank]
    elif given.step:
        masked = given.visible.split(",") if given.visible else range(plan.devices_per_node)
        shown = [int(number) for number in masked]
        own = [shown[rank * given.step :][: plan.devices_per_rank] for rank in range(ranks)]
    elif node and plan.cpu_lists:  # the launcher gives each rank those beside its cores
        own = beside(node, [node.cores_of(cpus(listed)) for listed in plan.cpu_lists], plan.devices_per_rank)
    else:
        own = []
    of: dict[int, list[int]] = {}
    for rank, numbers in enumerate(own[:ranks]):
        for number in numbers:
            of.setdefault(number, []).append(rank)
    return of


def _parts(plan: Plan, node: Node | None) -> Iterator[_Part]:
    """A node's sockets; where devices are near to some cores of a socket, these groups of cores."""
    if not node or not node.sockets:
        return
    if node.device_cores:
        groups: dict[str, list[int]] = {}
        for number, listed in enumerate(node.device_cores):
            groups.setdefault(listed, []).append(number)
        held = {core for listed in groups for core in cpus(listed)}
        for listed in sorted(groups, key=lambda one: min(cpus(one))):
            yield _Part(f"cores {listed}", cpus(listed), groups[listed])
        if rest := [core for core in node.cores if core not in held]:
            yield _Part(f"cores {cpulist(rest)}", rest, [])
        return
    first = 0
    for number, listed in enumerate(node.sockets):
        count = node.devices[number] if number < len(node.devices) else 0
        yield _Part(f"socket {number}: cores {listed}", cpus(listed), list(range(first, first + count)))
        first += count


def _drawn(
    part: _Part,
    top: int,
    cores: Mapping[int, list[int]],
    devices: Mapping[int, list[int]],
    ranks: int,
    node: Node | None,
) -> tuple[list[str], int]:
    """A group of cores with its devices, and where the picture goes on below it."""
    reserved = {*cpus(node.reserved_cores)} if node and node.reserved_cores else set[int]()
    lines = [_text(_LEFT, top, part.name)]
    for place, core in enumerate(part.cores):
        row, column = divmod(place, _IN_A_ROW)
        x, y = _LEFT + column * (_CELL + _GAP), top + 8 + row * (_CELL + _GAP)
        own = cores.get(core, [])
        what = "reserved for the system" if core in reserved and not own else _ranks(own) or "idle"
        kind = "idle" if core not in reserved else "reserved"
        lines += _box(x, y, (_CELL, _CELL), own, ranks, kind, f"core {core}: {what}", _short(own))
    rows = -(-len(part.cores) // _IN_A_ROW)
    in_a_row = (WIDTH - _DEVICES_AT - _LEFT) // (_DEVICE[0] + 6)
    for place, number in enumerate(part.devices):
        row, column = divmod(place, in_a_row)
        x, y = _DEVICES_AT + column * (_DEVICE[0] + 6), top + 8 + row * (_DEVICE[1] + 6)
        own = devices.get(number, [])
        label = f"device {number}"
        said = _ranks(own) or "idle"
        lines += _box(x, y, _DEVICE, own, ranks, "idle", f"{label}: {said}", said, label)
    devices_high = -(-len(part.devices) // in_a_row) * (_DEVICE[1] + 6)
    return lines, top + 8 + max(rows * (_CELL + _GAP), devices_high) + 30


def _ranks_alone(top: int, ranks: int) -> tuple[list[str], int]:
    lines: list[str] = []
    in_a_row = (WIDTH - 2 * _LEFT) // (_DEVICE[0] + 6)
    for rank in range(ranks):
        row, column = divmod(rank, in_a_row)
        x, y = _LEFT + column * (_DEVICE[0] + 6), top + row * (_DEVICE[1] + 6)
        lines += _box(x, y, _DEVICE, [rank], ranks, "idle", f"rank {rank}", f"rank {rank}")
    return lines, top + -(-ranks // in_a_row) * (_DEVICE[1] + 6) + 24


def _box(
    x: int,
    y: int,
    size: tuple[int, int],
    own: Sequence[int],
    ranks: int,
    idle: str,
    title: str,
    words: str,
    above: str = "",
) -> Iterator[str]:
    """A core or a device in the colours of its ranks, side by side if it has several."""
    width, height = size
    yield f"<g><title>{escape(title)}</title>"
    if not own:
        yield f'<rect class="{idle}" x="{x}" y="{y}" width="{width}" height="{height}" rx="3"/>'
    for place, rank in enumerate(own):
        share = width / len(own)
        fill = f"hsl({rank * 360 // ranks} {70 - rank % 2 * 25}% {68 + rank % 3 * 5}%)"
        left = x + place * share
        yield f'<rect fill="{fill}" x="{left:g}" y="{y}" width="{share:g}" height="{height}" rx="3"/>'
    kind = "small used" if own else "small"
    if above:
        yield f'<text class="{kind}" x="{x + width / 2:g}" y="{y + 15}">{escape(above)}</text>'
    if words:
        place_y = y + height - 10 if above else y + height / 2 + 4
        yield f'<text class="{kind}" x="{x + width / 2:g}" y="{place_y:g}">{escape(words)}</text>'
    yield "</g>"


def _heading(plan: Plan, ranks: int) -> Iterator[str]:
    nodes = f"one of its {plan.nodes} nodes" if plan.nodes > 1 else "its node"
    yield _text(_LEFT, 30, f"{plan.name} on {plan.site}: {nodes}", "title")
    has = f"{ranks} ranks" if ranks > 1 else "1 rank"
    yield _text(_LEFT, 50, f"{has}, started by {plan.launcher}; the numbers are local ranks")


def _notes(
    plan: Plan, node: Node | None, cores: Mapping[int, object], devices: Mapping[int, object]
) -> Iterator[str]:
    """What the picture cannot show."""
    if not cores:
        yield f"Cores: chosen by {'Slurm' if plan.scheduler == 'slurm' else 'the launcher'} on the node."
    if plan.devices_per_rank and not devices:
        yield f"Devices: {plan.devices_per_rank} for each rank, chosen on the node."
    if node and node.reserved_cores:
        yield f"Dark grey: cores {node.reserved_cores}, reserved for the system."


def _words(cores: Mapping[int, list[int]], devices: Mapping[int, list[int]], ranks: int) -> str:
    """The picture in words, for those who do not see it."""
    said = []
    for rank in range(ranks):
        own = cpulist(sorted(core for core, of in cores.items() if rank in of))
        near = cpulist(sorted(number for number, of in devices.items() if rank in of))
        has = [f"cores {own}"] * bool(own) + [f"device {near}"] * bool(near)
        said.append(f"local rank {rank}" + (f" has {' and '.join(has)}" if has else ""))
    return "; ".join(said)


def _ranks(own: Sequence[int]) -> str:
    return f"rank{'s' * (len(own) > 1)} {cpulist(own)}" if own else ""


def _short(own: Sequence[int]) -> str:
    return cpulist(own) if len(own) < 3 else f"{own[0]}…{own[-1]}"


def _text(x: int, y: int, words: str, kind: str = "") -> str:
    return f'<text{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} x="{x}" y="{y}">{escape(words)}</text>'


def _document(description: str, height: int, lines: Sequence[str]) -> str:
    box = f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return "\n".join(
        [head, f"<title>{escape(description)}</title>", f"<style>{_STYLE}</style>", box, *lines, "</svg>", ""]
    )
