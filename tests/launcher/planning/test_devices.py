"""Which devices each rank gets: Aurora by heart, every other node by property."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import cpulist, cpus
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.planning import binding, devices
from castoff.launcher.planning.planner import plan
from castoff.launcher.runs.plan import Devices

from .test_binding import core_lists, node_of, nodes


@pytest.fixture(scope="module")
def aurora() -> Node:
    return node_of("aurora")


def in_order(node: Node, ranks: int, per_rank: int) -> Devices:
    """As castoff gives them to ranks that it places itself."""
    return devices.handed_out(devices.in_order(node, ranks, per_rank), node)


@pytest.mark.parametrize(
    ("ranks", "masks"),
    [
        (1, "0"),
        (2, "0,6"),
        (4, "0,3,6,9"),
        (6, "0,2,4,6,8,10"),  # six GPUs, not the six tiles of the first three
        (8, "0,1,3,4,6,7,9,10"),
    ],
)
def test_fewer_ranks_than_tiles_spread_over_auroras_node(aurora: Node, ranks: int, masks: str) -> None:
    found = in_order(aurora, ranks, 1)
    assert found == Devices(visible=masks, step=1)


def test_a_rank_per_tile_sees_the_whole_node(aurora: Node) -> None:
    assert in_order(aurora, 12, 1) == Devices(step=1)


@pytest.mark.parametrize(("ranks", "sharing"), [(24, 2), (36, 3), (48, 4)])
def test_more_ranks_than_tiles_share_them_in_order(aurora: Node, ranks: int, sharing: int) -> None:
    found = in_order(aurora, ranks, 1)
    assert found.per_rank == [str(rank // sharing) for rank in range(ranks)]
    assert found.step == 0
    assert found.visible is None


def test_whole_gpus(aurora: Node) -> None:
    found = in_order(aurora, 6, 2)
    assert found.per_rank == ["0,1", "2,3", "4,5", "6,7", "8,9", "10,11"]
    assert in_order(aurora, 1, 12).per_rank == ["0,1,2,3,4,5,6,7,8,9,10,11"]
    assert in_order(aurora, 12, 0) == Devices()


@pytest.mark.parametrize(
    ("ranks", "each", "words"),
    [
        (13, 1, "up to 12 ranks, or 24, 36, 48 that share them evenly; or `devices_per_rank: 0`, for"),
        (60, 1, "what fits: up to 12 ranks, or 24, 36, 48"),
        (12, 2, "need 24, and a node has 12; what fits: up to 6 ranks or up to 1 for each"),
        (24, 2, "need 48, and a node has 12; what fits: up to 6 ranks$"),
        (1, 13, "need 13, and a node has 12; what fits: up to 12 for each"),
        (13, 13, "what fits: fewer"),
    ],
)
def test_devices_that_are_not_there(aurora: Node, ranks: int, each: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        in_order(aurora, ranks, each)


# Their guides' own lists: using-gpus (Polaris), a benchmark's measurement (Perlmutter), hello_jobstep's
# output (Frontier), each rank's cores and the device beside them.
BESIDE = {
    ("polaris", 1): ("0-31", "3"),
    ("polaris", 2): ("0-15:16-31", "3,1"),
    ("polaris", 4): ("0-7:8-15:16-23:24-31", "3,2,1,0"),
    ("perlmutter", 1): ("0-63", "3"),
    ("perlmutter", 2): ("0-31:32-63", "3,1"),
    ("perlmutter", 4): ("0-15:16-31:32-47:48-63", "3,2,1,0"),
    ("frontier", 2): ("1-7,9-15,17-23,25-31:33-39,41-47,49-55,57-63", "4,6"),
    ("frontier", 4): ("1-7,9-15:17-23,25-31:33-39,41-47:49-55,57-63", "4,2,6,0"),
    ("frontier", 8): ("1-7:9-15:17-23:25-31:33-39:41-47:49-55:57-63", "4,5,2,3,6,7,0,1"),
}


@pytest.mark.parametrize(("site", "ranks"), BESIDE)
def test_a_rank_has_the_device_beside_its_cores(site: str, ranks: int) -> None:
    node = node_of(site)
    lists, masks = BESIDE[site, ranks]
    assert ":".join(core_lists(node, ranks, None)) == lists
    found = in_order(node, ranks, 1)
    assert (found.visible, found.step) == (masks, 1)
    for own, device in zip(binding.cores(node, ranks, None), masks.split(","), strict=True):
        assert set(cpus(node.device_cores[int(device)])) & set(own)


def test_several_devices_of_a_rank_are_all_beside_it() -> None:
    assert in_order(node_of("polaris"), 2, 2).per_rank == ["3,2", "1,0"]
    assert in_order(node_of("frontier"), 4, 2).per_rank == ["4,5", "2,3", "6,7", "0,1"]


def test_ranks_that_share_a_device_sit_beside_it() -> None:
    node = msgspec.structs.replace(node_of("polaris"), ranks_per_device=2)
    assert in_order(node, 8, 1).per_rank == ["3", "3", "2", "2", "1", "1", "0", "0"]


def test_a_rank_whose_own_device_is_not_enough_gets_one_of_its_socket() -> None:
    """Of the devices that are beside no core of its own, though another socket's have lower numbers."""
    node = Node(
        sockets=["0-7", "8-15"],
        devices=[3],
        device_variable="CUDA_VISIBLE_DEVICES",
        device_cores=["12-15", "0-3", "8-11"],
        source="x",
        date="2026-11-20",
    )
    assert devices.beside(node, [cpus("12-15")], 2) == [[0, 2]]


def test_where_nothing_may_be_shared_nothing_is_offered() -> None:
    node = Node(devices=[4], device_variable="CUDA_VISIBLE_DEVICES", source="x", date="2026-11-20")
    with pytest.raises(ValueError, match=r"what fits: up to 4 ranks; or `devices_per_rank: 0"):
        in_order(node, 8, 1)


@pytest.mark.parametrize(
    ("each", "per_task", "step"),
    [
        (0, False, None),
        (0, True, None),
        (1, False, 1),
        (2, False, 2),
        (2, True, 0),
    ],
)
def test_devices_that_the_scheduler_hands_out(each: int, per_task: bool, step: int | None) -> None:
    request = "gpus-per-task" if per_task else "gpus-per-node"
    site = msgspec.structs.replace(Site.load("slurm"), gpu_request=request)
    spec = JobSpec.of({"command": ["true"], "walltime": "1h", "devices_per_rank": each})
    assert plan(spec, site).devices == Devices(step=step)


def masks_of(found: Devices, ranks: int, total: int) -> list[list[int]]:
    """The devices that each local rank uses, as the shim would hand them out."""
    if found.per_rank:
        return [[int(device) for device in mask.split(",")] for mask in found.per_rank]
    visible = [int(device) for device in found.visible.split(",")] if found.visible else list(range(total))
    return [[visible[rank]] for rank in range(ranks)]


@given(nodes(), st.integers(1, 40), st.integers(1, 4))
def test_devices_of_any_node(node: Node, ranks: int, each: int) -> None:
    total = node.device_count
    assume(total)
    try:
        masks = masks_of(in_order(node, ranks, each), ranks, total)
    except ValueError:
        assert ranks * each > total
        if each == 1:
            assert ranks % total or ranks // total > node.ranks_per_device
        return
    assert len(masks) == ranks
    used = [device for mask in masks for device in mask]
    assert set(used) <= set(range(total))
    assert all(len(set(mask)) == each for mask in masks)
    times = {used.count(device) for device in set(used)}
    if ranks * each <= total:
        assert times == {1}, "no device belongs to two ranks"
    else:
        assert set(used) == set(range(total))
        assert times == {ranks // total}, "shared evenly"
        assert ranks // total <= node.ranks_per_device
    assert all(before <= after for before, after in pairwise(mask[0] for mask in masks))


@st.composite
def fitting(draw: st.DrawFn) -> tuple[Node, int, int]:
    """A node of equal sockets with ranks and devices for each, so that no socket has too few."""
    sockets, held = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    each = draw(st.integers(1, held))
    ranks = draw(st.integers(1, sockets * (held // each)))
    times = draw(st.integers(2, 4)) if each == 1 and draw(st.booleans()) else 1
    if times > 1:
        ranks = sockets * held * times
    width = held * times
    node = Node(
        sockets=[f"{first}-{first + width - 1}" for first in range(0, sockets * width, width)],
        devices=[held] * sockets,
        device_variable="CUDA_VISIBLE_DEVICES",
        ranks_per_device=times,
        source="drawn",
        date="2026-11-20",
    )
    return node, ranks, each


@given(fitting())
def test_a_ranks_devices_hang_on_the_socket_of_its_cores(case: tuple[Node, int, int]) -> None:
    node, ranks, each = case
    assume(ranks > 1)  # a node's only rank has the cores of both
    cores = binding.cores(node, ranks, None)
    masks = masks_of(in_order(node, ranks, each), ranks, node.device_count)
    usable = node.usable_cores()
    for own, mask in zip(cores, masks, strict=True):
        home = next(number for number, socket in enumerate(usable) if own[0] in socket)
        assert {device // node.devices[0] for device in mask} == {home}


def test_devices_all_on_one_socket_are_used_all_the_same() -> None:
    node = Node(
        sockets=["0-7", "8-15"],
        devices=[0, 4],
        device_variable="CUDA_VISIBLE_DEVICES",
        source="x",
        date="2026-11-20",
    )
    assert masks_of(in_order(node, 2, 1), 2, 4) == [[0], [2]]
    assert masks_of(in_order(node, 4, 1), 4, 4) == [[0], [1], [2], [3]]
    assert masks_of(in_order(node, 2, 2), 2, 4) == [[0, 1], [2, 3]]


@st.composite
def bound(draw: st.DrawFn) -> tuple[Node, list[set[int]], int]:
    """A node, where each rank has some of its cores, and devices for each rank."""
    sockets, width, held = draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    everything = range(sockets * width)
    blocks = [cpulist(everything[at : at + width]) for at in range(0, len(everything), width)]
    beside = [
        cpulist(sorted(draw(st.sets(st.sampled_from(cpus(block)), min_size=1))))
        for block in blocks
        for _ in range(held)
    ]
    node = Node(
        sockets=blocks,
        devices=[held] * sockets,
        device_cores=beside if draw(st.booleans()) else [],
        device_variable="CUDA_VISIBLE_DEVICES",
        ranks_per_device=draw(st.integers(1, 2)),
        source="drawn",
        date="2026-11-20",
    )
    times = node.ranks_per_device
    ranks = draw(st.integers(1, sockets * held) | st.just(sockets * held * times))
    per_rank = draw(st.integers(1, sockets * held // ranks)) if ranks <= sockets * held else 1
    own = st.sets(st.sampled_from(everything), min_size=1)
    return node, draw(st.lists(own, min_size=ranks, max_size=ranks)), per_rank


def beside_itself(node: Node, device: int) -> set[int]:
    """The cores beside a device, counted anew."""
    home = [at for at, held in enumerate(node.devices) for _ in range(held)][device]
    return set(cpus(node.device_cores[device] if node.device_cores else node.sockets[home]))


def matched(near: list[list[int]], times: int) -> bool:
    """Whether each rank that is beside some devices can have one of these, by trying all ways."""
    left = [own for own in near if own]
    if not left:
        return True
    used: dict[int, int] = {}

    def some(rank: int) -> bool:
        if rank == len(left):
            return True
        for device in left[rank]:
            if used.get(device, 0) < times:
                used[device] = used.get(device, 0) + 1
                if some(rank + 1):
                    return True
                used[device] -= 1
        return False

    return some(0)


TWO_SOCKETS = Node(
    sockets=["0", "1"], devices=[4, 4], device_variable="CUDA_VISIBLE_DEVICES", source="", date="2026-11-20"
)


@given(bound())
@example((TWO_SOCKETS, [{0, 1}, {0}], 3))
def test_devices_beside_cores_of_any_kind(case: tuple[Node, list[set[int]], int]) -> None:
    node, own, per_rank = case
    ranks, total = len(own), node.device_count
    times = max(ranks * per_rank // total, 1)
    near = [[device for device in range(total) if beside_itself(node, device) & cores] for cores in own]
    assume(ranks < 9 and total < 9)
    try:
        chosen = devices.beside(node, own, per_rank)
    except ValueError:
        assert not matched(near, times), "there is a way"
        return
    flat = [device for mine in chosen for device in mine]
    assert all(len(set(mine)) == per_rank for mine in chosen)
    assert set(flat) <= set(range(total))
    assert max(map(flat.count, flat)) <= times, "no two ranks share a device unless there are fewer"
    for mine, devices_near, cores in zip(chosen, near, own, strict=True):
        unbound = all(len(each & set(cpus(socket))) for socket in node.sockets for each in own)
        assert set(mine) & set(devices_near) or not devices_near or unbound, (mine, cores)
    found = devices.handed_out(chosen, node)
    assert masks_of(found, ranks, total) == chosen


@given(nodes(), st.integers(1, 40), st.integers(1, 4))
def test_ranks_bound_as_castoff_would_bind_them_get_the_same_devices(
    node: Node, ranks: int, each: int
) -> None:
    if not node.device_count or len(node.devices) != len(node.sockets):
        return
    if not all(node.usable_cores()):  # no rank is beside the devices of a socket that is all reserved
        return
    try:
        cores, chosen = binding.cores(node, ranks, None), devices.in_order(node, ranks, each)
        found = devices.beside(node, [set(own) for own in cores], each)
    except ValueError:
        return
    if all(
        count * each <= held
        for count, held in zip(binding.ranks_of_sockets(ranks, len(node.sockets)), node.devices, strict=True)
    ):
        assert found == chosen


@given(st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True), min_size=1, max_size=8))
def test_the_index_among_those_that_a_rank_sees(seen: list[list[int]]) -> None:
    indices = devices.among(seen, 1)
    assert all(0 <= index < len(own) for index, own in zip(indices, seen, strict=True))
    used = [sorted(own)[index] for index, own in zip(indices, seen, strict=True)]
    if matched(seen, 1):
        assert len(set(used)) == len(used), "no two ranks use the same device"
