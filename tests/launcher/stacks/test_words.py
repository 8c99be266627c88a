"""The text that people read: it stays short however many ranks there are."""

from __future__ import annotations

from collections.abc import Sequence

from castoff.launcher.stacks.answers import RankStack
from castoff.launcher.stacks.collecting import Collected, Unanswered
from castoff.launcher.stacks.frames import Frame, Thread
from castoff.launcher.stacks.grouping import grouped
from castoff.launcher.stacks.words import lines_of, notes_on, summary

REDUCE = [Frame("all_reduce", "/env/lib/python3.12/site-packages/torch/distributed.py", 9)]
READ = [Frame("read", "/home/me/data.py", 88), Frame("<module>", "/home/me/train.py", 3)]


def at(
    rank: int | None,
    frames: list[Frame],
    host: str = "n1",
    waits_in: str | None = None,
    more: Sequence[Thread] = (),
) -> RankStack:
    threads = [Thread("MainThread", True, frames), *more]
    return RankStack(
        rank=rank,
        host=host,
        pid=1000 + (rank or 0),
        state="S",
        source="py-spy",
        threads=threads,
        waits_in=waits_in,
    )


def without(rank: int, lacks: str | None) -> RankStack:
    return RankStack(
        rank=rank, host="n1", pid=7, state="D", reason="none", lacks=lacks, kernel=["nfs_wait+0x1"]
    )


def found(ranks: list[RankStack], **others: object) -> Collected:
    fields = {"unanswered": [], "over": [], "missing": [], **others}
    return Collected(0, False, 0, 0.0, ranks, **fields)  # type: ignore[arg-type]


def text(ranks: list[RankStack]) -> str:
    return "\n".join(lines_of(grouped(ranks), "/home/me"))


def test_the_odd_one_is_first_and_paths_are_short() -> None:
    ranks = [at(rank, REDUCE, f"n{1 + rank // 4}") for rank in range(8) if rank != 3]
    assert (
        text([*ranks, at(3, READ, waits_in="nfs_wait_bit_killable")])
        == """\
rank 3 on n1, process 1003, waiting for the file system (nfs_wait_bit_killable):
    read (data.py:88)
    <module> (train.py:3)

ranks 0-2, 4-7 on n1, n2:
    all_reduce (torch/distributed.py:9)
"""
    )


def test_other_threads_and_processes_without_a_number() -> None:
    shown = text([at(None, READ, more=[Thread("", False, REDUCE), Thread("loader", False, [])])])
    assert shown.startswith("process 1000 on n1:\n")
    assert (
        "  another thread:\n    all_reduce (" in shown and "  thread loader:\n    no Python call\n" in shown
    )
    assert text([without(4, None)]) == (
        "rank 4 on n1, process 7, in state D, which no signal interrupts:\n"
        "    no stack: none\n    nfs_wait+0x1\n"
    )


def test_ten_thousand_ranks() -> None:
    """All at different places, as when they compute, and all but one at the same."""
    many = [at(rank, [Frame("f", "/a.py", rank + 1)], f"n{rank // 12}") for rank in range(10_000)]
    shown = text(many)
    assert shown.count("\n") < 100 and "… 9,980 more groups: --rank N and --json show them" in shown
    same = [at(rank, REDUCE, f"n{rank // 12}") for rank in range(10_000) if rank != 5000]
    assert "ranks 0-4999, 5001-9999 on n0, n1, n2 and 831 more:" in text(same)


def test_the_first_line() -> None:
    assert summary("r", found([at(0, READ), at(1, READ, "n2")])).startswith("r: 2 ranks on 2 hosts at ")
    assert summary("r", found([at(None, READ)])).startswith("r: 1 process on 1 host at ")
    assert summary("r", found([])).startswith("r: 0 ranks at ")


def test_what_is_missing_and_what_would_help() -> None:
    slow = [Unanswered(f"n{number}", "too slow") for number in range(9)]
    notes = [*notes_on("r", found([without(0, "py-spy")], unanswered=slow, over=[1, 2], missing=[3]))]
    assert notes[0] == "n0, n1, n2, n3, n4, n5, n6, n7 and 1 more: no answer: too slow"
    assert notes[1] == "ranks 1, 2 ended well"
    assert notes[2].startswith("rank 3: no process found") and "(castoff logs r --rank 3)" in notes[2]
    assert notes[3].startswith("for the missing stacks, install py-spy") and "SIGQUIT" in notes[3]
    (note,) = notes_on("r", found([without(0, "permission")]))
    assert "reads" not in note and "another's memory" in note
    assert [*notes_on("r", found([at(0, READ)]))] == []
