"""Which cores and devices each rank gets: Aurora by heart, every other node by property."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from launcher.config.job import JobSpec
from launcher.config.quantities import cpulist, cpus
from launcher.config.site import Site
from launcher.config.site_fields import Node
from launcher.planning import binding
from launcher.planning.planner import plan
from launcher.runs.plan import Devices


@pytest.fixture(scope="module")
def aurora() -> Node:
    node = Site.load("aurora").node
    assert node is not None
    return node


def core_lists(node: Node, ranks: int, per_rank: int | None) -> list[str]:
    return [cpulist(numbers) for numbers in binding.cores(node, ranks, per_rank)]


# facts of the ALCF user guides: running-jobs-aurora (12 and 6 ranks), pbs_utils (1 rank). Where they
# leave cores of a socket over, so do we; where they differ, every rank gets the most that is equal.
AURORA = {
    1: "1-51,53-103",
    2: "1-51:53-103",
    4: "1-25:26-50:53-77:78-102",
    6: "1-17:18-34:35-51:53-69:70-86:87-103",
    12: "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100",
    24: "1-4:5-8:9-12:13-16:17-20:21-24:25-28:29-32:33-36:37-40:41-44:45-48:"
    "53-56:57-60:61-64:65-68:69-72:73-76:77-80:81-84:85-88:89-92:93-96:97-100",
    48: ":".join(
        [f"{first}-{first + 1}" for first in range(1, 49, 2)]
        + [f"{first}-{first + 1}" for first in range(53, 101, 2)]
    ),
}


@pytest.mark.parametrize("ranks", AURORA)
def test_auroras_cores(aurora: Node, ranks: int) -> None:
    assert ":".join(core_lists(aurora, ranks, None)) == AURORA[ranks]


def test_no_rank_of_auroras_touches_a_reserved_core_or_both_sockets(aurora: Node) -> None:
    for ranks in range(1, 103):
        lists = binding.cores(aurora, ranks, None)
        assert len(lists) == ranks
        used = [core for own in lists for core in own]
        assert len(set(used)) == len(used), ranks
        assert not {0, 52, 104, 156} & set(used), ranks
        assert set(used) <= set(range(104)), f"of {ranks}: hardware threads are not cores"
        if ranks > 1:
            assert all(len({core // 52 for core in own}) == 1 for own in lists), ranks


@pytest.mark.parametrize(
    ("ranks", "asked", "lists"),
    [
        (1, 8, "1-8"),
        (1, 60, "1-51,53-61"),
        (2, 4, "1-4:53-56"),
        (12, 4, "1-4:5-8:9-12:13-16:17-20:21-24:53-56:57-60:61-64:65-68:69-72:73-76"),
    ],
)
def test_cores_that_were_asked_for(aurora: Node, ranks: int, asked: int, lists: str) -> None:
    assert ":".join(core_lists(aurora, ranks, asked)) == lists


@pytest.mark.parametrize(
    ("ranks", "asked", "words"),
    [
        (12, 9, "12 ranks on a node leave each 8 of its 102 cores, on one socket"),
        (1, 103, "a node has 102 cores for ranks"),
        (103, None, "102 ranks are the most"),
        (10_000_000, None, "102 ranks are the most"),
    ],
)
def test_too_few_cores(aurora: Node, ranks: int, asked: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        binding.cores(aurora, ranks, asked)


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
    found = binding.devices(aurora, ranks, 1)
    assert found == Devices(visible=masks, step=1)


def test_a_rank_per_tile_sees_the_whole_node(aurora: Node) -> None:
    assert binding.devices(aurora, 12, 1) == Devices(step=1)


@pytest.mark.parametrize(("ranks", "sharing"), [(24, 2), (36, 3), (48, 4)])
def test_more_ranks_than_tiles_share_them_in_order(aurora: Node, ranks: int, sharing: int) -> None:
    found = binding.devices(aurora, ranks, 1)
    assert found.per_rank == [str(rank // sharing) for rank in range(ranks)]
    assert found.step == 0
    assert found.visible is None


def test_whole_gpus(aurora: Node) -> None:
    found = binding.devices(aurora, 6, 2)
    assert found.per_rank == ["0,1", "2,3", "4,5", "6,7", "8,9", "10,11"]
    assert binding.devices(aurora, 1, 12).per_rank == ["0,1,2,3,4,5,6,7,8,9,10,11"]
    assert binding.devices(aurora, 12, 0) == Devices()


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
        binding.devices(aurora, ranks, each)


def node_of(site: str) -> Node:
    node = Site.load(site).node
    assert node is not None
    return node


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
    found = binding.devices(node, ranks, 1)
    assert (found.visible, found.step) == (masks, 1)
    for own, device in zip(binding.cores(node, ranks, None), masks.split(","), strict=True):
        assert set(cpus(node.device_cores[int(device)])) & set(own)


@pytest.mark.parametrize("site", ["polaris", "perlmutter", "frontier"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 16, 32])
def test_no_rank_gets_a_reserved_core_or_anothers(site: str, ranks: int) -> None:
    node = node_of(site)
    used = [core for own in binding.cores(node, ranks, None) for core in own]
    assert len(set(used)) == len(used)
    assert not set(cpus(node.reserved_cores or "100")) & set(used)
    assert set(used) <= set(cpus(node.sockets[0])), "hardware threads are not cores"


def test_fewer_cores_than_its_share_keep_a_rank_beside_its_device() -> None:
    assert ":".join(core_lists(node_of("polaris"), 4, 4)) == "0-3:8-11:16-19:24-27"
    assert ":".join(core_lists(node_of("frontier"), 8, 1)) == "1:9:17:25:33:41:49:57"


def test_several_devices_of_a_rank_are_all_beside_it() -> None:
    assert binding.devices(node_of("polaris"), 2, 2).per_rank == ["3,2", "1,0"]
    assert binding.devices(node_of("frontier"), 4, 2).per_rank == ["4,5", "2,3", "6,7", "0,1"]


def test_ranks_that_share_a_device_sit_beside_it() -> None:
    node = msgspec.structs.replace(node_of("polaris"), ranks_per_device=2)
    assert binding.devices(node, 8, 1).per_rank == ["3", "3", "2", "2", "1", "1", "0", "0"]


def test_where_nothing_may_be_shared_nothing_is_offered() -> None:
    node = Node(devices=[4], device_variable="CUDA_VISIBLE_DEVICES", source="x", date="2026-11-20")
    with pytest.raises(ValueError, match=r"what fits: up to 4 ranks; or `devices_per_rank: 0`"):
        binding.devices(node, 8, 1)


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


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    sockets = draw(st.integers(1, 4))
    width = draw(st.integers(1, 24))
    held = draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    everything = range(sockets * width)
    reserved = draw(st.sets(st.sampled_from(everything), max_size=3))
    return Node(
        sockets=[
            cpulist(list(everything[start : start + width])) for start in range(0, len(everything), width)
        ],
        reserved_cores=cpulist(sorted(reserved)) or None,
        devices=held,
        device_variable="CUDA_VISIBLE_DEVICES",
        ranks_per_device=draw(st.integers(1, 4)),
        source="drawn",
        date="2026-11-20",
    )


@given(st.integers(1, 200), st.integers(1, 8))
@example(10_000_000, 2)
def test_ranks_fill_the_sockets_in_order_and_evenly(ranks: int, sockets: int) -> None:
    counts = binding.ranks_of_sockets(ranks, sockets)
    assert len(counts) == sockets
    assert sum(counts) == ranks
    assert max(counts) - min(counts) <= 1


@given(nodes(), st.integers(1, 40), st.none() | st.integers(1, 20))
def test_cores_of_any_node(node: Node, ranks: int, asked: int | None) -> None:
    usable = node.usable_cores()
    try:
        lists = binding.cores(node, ranks, asked)
    except ValueError:
        # Refused only where it is true: the rank with the fewest neighbours' share is too small.
        counts = binding.ranks_of_sockets(ranks, len(usable))
        if ranks == 1:
            assert asked is not None
            assert asked > sum(map(len, usable))
        else:
            assert any(count * (asked or 1) > len(own) for count, own in zip(counts, usable, strict=True))
        return
    assert len(lists) == ranks
    used = [core for own in lists for core in own]
    assert len(set(used)) == len(used), "no core belongs to two ranks"
    assert set(used) <= {core for own in usable for core in own}, "no reserved core"
    assert len({len(own) for own in lists}) == 1, "all ranks are equally wide"
    if asked is not None:
        assert len(lists[0]) == asked
    if ranks > 1:
        homes = [next(n for n, own in enumerate(usable) if core in own) for core in (own[0] for own in lists)]
        assert all(set(own) <= set(usable[home]) for own, home in zip(lists, homes, strict=True))
        assert homes == sorted(homes), "local ranks stand in the order of sockets"
    if asked is None and ranks > 1:  # nothing more would have fitted
        counts = binding.ranks_of_sockets(ranks, len(usable))
        wider = len(lists[0]) + 1
        assert any(count * wider > len(own) for count, own in zip(counts, usable, strict=True))


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
        masks = masks_of(binding.devices(node, ranks, each), ranks, total)
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
    masks = masks_of(binding.devices(node, ranks, each), ranks, node.device_count)
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
    assert masks_of(binding.devices(node, 2, 1), 2, 4) == [[0], [2]]
    assert masks_of(binding.devices(node, 4, 1), 4, 4) == [[0], [1], [2], [3]]
    assert masks_of(binding.devices(node, 2, 2), 2, 4) == [[0, 1], [2, 3]]
