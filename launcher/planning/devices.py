"""Which devices each local rank gets: the devices nearest to the rank's cores. Pure.

Ranks that castoff binds, or that nobody binds, are spread over a node's devices in the order of the cores
near the devices. If a job's `binding`, or flags of the launcher, set the cores of each rank, the devices
follow from these cores. If the launcher shows each rank only some devices, the rank's device is an index
among these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from castoff.launcher.config.quantities import cpulist, cpus
from castoff.launcher.config.site_fields import Node
from castoff.launcher.planning.binding import ranks_of_sockets
from castoff.launcher.runs.plan import Devices


class _Group(msgspec.Struct, frozen=True):
    """Devices that are near the same cores."""

    devices: list[int]
    """The devices' numbers on the node."""
    cores: set[int]


def in_order(node: Node, ranks: int, per_rank: int) -> list[list[int]]:
    """Return the devices of each local rank, for ranks that fill the sockets in order.

    If there are fewer ranks than devices, ranks are spread over the sockets (6 ranks on Aurora's 12 tiles use
    six GPUs, not the first half of the node); if there are more ranks than devices, ranks share devices in
    order (rank i of 24 uses device i // 2). Devices are in the order of the cores near them: Polaris's first
    rank uses device 3.

    Raises:
        ValueError: the ranks do not fit; the text, to be read after "is N, but", says what fits.
    """
    total = node.device_count
    if per_rank == 0:
        return [[] for _ in range(ranks)]
    shared = per_rank == 1 and ranks > total
    if shared and (ranks % total or ranks // total > node.ranks_per_device):
        fits = ", ".join(str(total * times) for times in range(2, node.ranks_per_device + 1))
        evenly = f", or {fits} that share them evenly" if fits else ""
        fits = f"up to {total} ranks{evenly}; or `devices_per_rank: 0`, for ranks that use none"
        raise ValueError(f"a node has {total} devices; what fits: {fits}")
    numbers: Sequence[int] = range(total)
    if node.device_cores:
        numbers = [number for group in _groups(node) for number in group.devices]
    if shared:
        return [[numbers[rank * total // ranks]] for rank in range(ranks)]
    if ranks * per_rank > total:
        needed = f"{ranks} ranks with {per_rank} devices each need {ranks * per_rank}"
        works = [f"up to {total // per_rank} ranks"] if per_rank <= total else []
        works += [f"up to {total // ranks} for each"] if ranks <= total else []
        raise ValueError(f"{needed}, and a node has {total}; what fits: {' or '.join(works) or 'fewer'}")
    return [[numbers[place] for place in places] for places in _spread(node, ranks, per_rank)]


def beside(node: Node, bound: Sequence[Collection[int]], per_rank: int) -> list[list[int]]:
    """Return the devices of each local rank that is bound to known cores: the devices nearest to these cores.

    A rank's devices are near enough if one of them is near one of its cores. Of devices near the same cores,
    lower ranks get lower numbers.

    Raises:
        ValueError: so many ranks are near some devices that other devices would be idle; the text follows
            the name of the field that binds the ranks.
    """
    groups = _groups(node)
    touched = [[len(group.cores.intersection(own)) for group in groups] for own in bound]
    if not per_rank or all(counts == touched[0] and all(counts) for counts in touched):
        return in_order(node, len(bound), per_rank)
    wanted = [
        sorted((at for at, count in enumerate(counts) if count), key=lambda at: -counts[at])
        for counts in touched
    ]
    times = max(len(bound) * per_rank // node.device_count, 1)
    claims, crowded = _claims(wanted, [len(group.devices) * times for group in groups], per_rank)
    if crowded is not None:
        raise ValueError(_crowded(groups, [at for at in range(len(groups)) if at in crowded], wanted, times))
    chosen: list[list[int]] = [[] for _ in bound]
    for group, claimed in zip(groups, claims, strict=True):
        _share_out(group.devices, sorted(claimed), chosen)
    idle = [number for group in groups for number in group.devices * times]
    for number in (number for own in chosen for number in own):
        idle.remove(number)
    for own, cores in zip(chosen, bound, strict=True):  # devices that are not near any rank without a device
        while len(own) < per_rank:
            own.append(min(idle, key=lambda number: _distance(node, number, cores)))
            idle.remove(own[-1])
    return chosen


def among(seen: Sequence[Sequence[int]], per_rank: int) -> list[int]:
    """Return the index of each local rank's first device among the devices that the launcher shows the rank,
    in their order.

    Two ranks get the same device only if there are fewer devices than ranks. `seen`: the numbers of the
    devices, the preferred first.
    """
    numbers = sorted({number for own in seen for number in own})
    wanted = [[numbers.index(number) for number in own] for own in seen]
    claims, _ = _claims(wanted, [1] * len(numbers), per_rank)
    holders = dict(zip(numbers, claims, strict=True))
    indices = []
    for rank, own in enumerate(seen):
        mine = [place for place, number in enumerate(sorted(own)) if rank in holders[number]]
        turn = (
            [*seen[:rank]].count(own) * per_rank % max(len(own), 1)
        )  # the ranks share devices, as the user has set
        indices.append(mine[0] if mine else turn)
    return indices


def handed_out(chosen: Sequence[Sequence[int]], node: Node) -> Devices:
    """Return the node's devices as a launcher hands them out: one mask for all ranks, or one mask for each
    rank.
    """
    total, names = node.device_count, node.device_names
    flat = [number for own in chosen for number in own]
    if not flat:
        return Devices()
    if names or len(flat) > len(chosen) or len({*flat}) < len(flat):
        masks = [",".join(names[number] if names else str(number) for number in own) for own in chosen]
        return Devices(per_rank=masks, step=0)
    return Devices(visible=None if flat == list(range(total)) else ",".join(map(str, flat)), step=1)


def cores_beside(node: Node, devices: Collection[int]) -> list[int]:
    """Return the cores that are near any of these devices."""
    return sorted({core for group in _groups(node) for core in group.cores if {*devices} & {*group.devices}})


def nearest(node: Node, cores: Collection[int]) -> list[int]:
    """Return the numbers of the devices near any of these cores; the device near most of the cores comes
    first.
    """
    shares = [(len(group.cores.intersection(cores)), group.devices) for group in _groups(node)]
    return [number for share, own in sorted(shares, key=lambda each: -each[0]) if share for number in own]


def has_sides(node: Node) -> bool:
    """Whether some of a node's cores are nearer to a device than other cores."""
    return bool(node.device_count) and (bool(node.device_cores) or len(node.sockets) > 1)


def _groups(node: Node) -> list[_Group]:
    """Return the groups of devices, in the order in which ranks take the cores near them."""
    sockets = [set(cpus(socket)) for socket in node.sockets]
    if not node.device_cores:
        numbers = iter(range(node.device_count))
        held = [[next(numbers) for _ in range(count)] for count in node.devices]
        groups = [_Group(own, set().union(*sockets[at : at + 1])) for at, own in enumerate(held)]
        return [group for group in groups if group.devices]
    found: dict[str, _Group] = {}
    for number, listed in enumerate(node.device_cores):
        found.setdefault(listed, _Group([], set(cpus(listed)))).devices.append(number)

    def place(group: _Group) -> tuple[int, int]:
        first = min(group.cores)
        return next(at for at, socket in enumerate(sockets) if first in socket), first

    return sorted(found.values(), key=place)


def _spread(node: Node, ranks: int, per_rank: int) -> list[list[int]]:
    """Return the positions of each rank's devices, counted along the sockets and spread evenly."""
    counts = ranks_of_sockets(ranks, len(node.devices))
    if any(count * per_rank > held for count, held in zip(counts, node.devices, strict=True)):
        # Ranks that need more devices than their socket has get blocks of the whole node.
        starts = [rank * node.device_count // ranks for rank in range(ranks)]
        return [list(range(start, start + per_rank)) for start in starts]
    chosen, first = [], 0
    for count, held in zip(counts, node.devices, strict=True):
        starts = [first + rank * held // count for rank in range(count)]
        chosen.extend([list(range(start, start + per_rank)) for start in starts])
        first += held
    return chosen


def _claims(
    wanted: Sequence[Sequence[int]], room: Sequence[int], times: int
) -> tuple[list[list[int]], set[int] | None]:
    """Return the ranks that get each position: first, each rank gets one position that it wants, preferably
    its best; then ranks get more positions while there is room.

    Also return the positions that more ranks want than can have, if a rank that wants a position gets none.
    """
    claims: list[list[int]] = [[] for _ in room]

    def claim(rank: int, tried: set[int]) -> bool:
        for at in wanted[rank]:
            if len(claims[at]) < room[at]:
                claims[at].append(rank)
                return True
        for at in wanted[rank]:
            if at not in tried:
                tried.add(at)
                for place, other in enumerate(claims[at]):
                    if claim(other, tried):
                        claims[at][place] = rank
                        return True
        return False

    crowded: set[int] | None = None
    for turn in range(times):
        for rank in range(len(wanted)):
            tried: set[int] = set()
            if not claim(rank, tried) and wanted[rank] and not turn:
                crowded = crowded or tried
    return claims, crowded


def _share_out(devices: list[int], claimed: list[int], chosen: list[list[int]]) -> None:
    """Divide a group's devices evenly among the ranks that have claimed a position in the group."""
    ranks = sorted({*claimed})
    each = len(claimed) // len(ranks) if ranks else 0
    if len(claimed) > len(devices) or any(claimed.count(rank) != each for rank in ranks):
        for place, rank in enumerate(claimed):
            chosen[rank].append(devices[place * len(devices) // max(len(claimed), len(devices))])
        return
    for place, rank in enumerate(ranks):
        start = place * len(devices) // len(ranks)
        chosen[rank].extend(devices[start : start + each])


def _distance(node: Node, number: int, cores: Collection[int]) -> int:
    """Return the distance of a device from some cores. 0: near one of the cores; 1: on the same socket; 2: on
    another socket.
    """
    near = set(cores_beside(node, [number]))
    if near.intersection(cores):
        return 0
    sockets = [set(cpus(socket)) for socket in node.sockets]
    return 1 if any(near & socket and socket.intersection(cores) for socket in sockets) else 2


def _crowded(groups: list[_Group], at: list[int], wanted: list[list[int]], times: int) -> str:
    """Return a message about why not all ranks can have a device near their cores."""
    ranks = [
        rank
        for rank, groups_of_rank in enumerate(wanted)
        if groups_of_rank and {*at}.issuperset(groups_of_rank)
    ]
    numbers = sorted(number for one in at for number in groups[one].devices)
    near = cpulist(sorted({core for one in at for core in groups[one].cores}))
    which = f"device {numbers[0]}" if len(numbers) == 1 else f"devices {cpulist(numbers)}"
    room = len(numbers) * times
    serves = f"which {room} {'rank' if room == 1 else 'ranks'} can use"
    return (
        f"binds {len(ranks)} ranks (local ranks {cpulist(ranks)}) to cores {near}, beside {which}, {serves}"
    )
