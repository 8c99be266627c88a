"""Which cores each rank gets: Aurora by heart, every other node by property."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from castoff.launcher.config.quantities import cpulist, cpus
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.planning import binding


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


def node_of(site: str) -> Node:
    node = Site.load(site).node
    assert node is not None
    return node


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
