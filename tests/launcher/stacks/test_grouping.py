"""Ranks with the same stack are together, the odd ones first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.stacks.answers import RankStack
from castoff.launcher.stacks.frames import Frame, Thread
from castoff.launcher.stacks.grouping import grouped, numbers


def at(rank: int | None, function: str | None, state: str = "S", **others: object) -> RankStack:
    threads = [Thread("", True, [Frame(function, "/a.py", 3)])] if function else []
    reason = None if function else "there is none"
    return RankStack(
        rank=rank, host="n1", pid=1000 + (rank or 0), state=state, threads=threads, reason=reason
    )


PLACES = st.sampled_from(["all_reduce", "read", "Loader.read", None])


@given(st.lists(st.tuples(PLACES, st.sampled_from("SRD")), max_size=30), st.randoms())
def test_every_rank_is_in_one_group(drawn: list[tuple[str | None, str]], random: st.DrawFn) -> None:
    ranks = [at(rank, place, state) for rank, (place, state) in enumerate(drawn)]
    random.shuffle(ranks)  # type: ignore[attr-defined]
    groups = grouped(ranks)
    found = [rank.rank for group in groups for rank in group.ranks]
    assert sorted(found) == [*range(len(drawn))]  # type: ignore[type-var]
    sizes = [len(group.ranks) for group in groups]
    assert sizes == sorted(sizes)
    for group in groups:
        assert [rank.rank for rank in group.ranks] == sorted(rank.rank for rank in group.ranks)  # type: ignore[type-var]
        assert (
            len(
                {
                    (rank.state == "D", *(f.key for t in rank.threads for f in t.frames))
                    for rank in group.ranks
                }
            )
            == 1
        )
    assert len(groups) == len({(place and place.rpartition(".")[2], state == "D") for place, state in drawn})


def test_the_odd_one_is_first() -> None:
    groups = grouped([*(at(rank, "all_reduce") for rank in (0, 1, 2, 4, 5, 6, 7)), at(3, "read")])
    assert [[rank.rank for rank in group.ranks] for group in groups] == [[3], [0, 1, 2, 4, 5, 6, 7]]
    groups = grouped([at(0, "a"), at(1, "b"), at(2, "b"), at(3, "a")])
    assert [group.first.rank for group in groups] == [0, 1]


@given(st.sets(st.integers(0, 10_000)))
def test_numbers_can_be_read_back(ranks: set[int]) -> None:
    text = numbers(sorted(ranks))
    read: list[int] = []
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("-")
        read += range(int(first), int(last or first) + 1)
    assert read == sorted(ranks)


def test_numbers() -> None:
    assert numbers([0, 1, 2, 4, 6, 7]) == "0-2, 4, 6, 7"
