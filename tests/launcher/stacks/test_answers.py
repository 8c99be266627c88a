"""What a host's script prints, as data."""

from __future__ import annotations

import pytest

from castoff.launcher.stacks.answers import Answer, RankStack, read_answer

FAULTHANDLER = ["Current thread 0x0000 (most recent call first):", '  File "/a.py", line 3 in inner']


def answer(*lines: str) -> Answer:
    return read_answer("n1", "mark", [f"mark {line}" for line in lines])


def only(*lines: str, process: str = "rank 3 8 70 S futex_wait_queue - 1 python") -> RankStack:
    return answer(process, *lines, "over").ranks[0]


def test_a_stack_of_each_kind() -> None:
    rank = only('py-spy 3 70 Thread 70 (idle): "MainThread"', "py-spy 3 70     f (/a.py:3)")
    assert (rank.rank, rank.host, rank.pid, rank.source, rank.reason) == (3, "n1", 70, "py-spy", None)
    assert rank.threads[0].frames[0].function == "f"
    rank = only("missing 3 70 py-spy", *(f"handler 3 70 {line}" for line in FAULTHANDLER))
    assert (rank.source, rank.lacks, rank.threads[0].frames[0].function) == ("handler", None, "inner")


def test_lines_of_others_and_damaged_ones_do_not_count() -> None:
    read = read_answer(
        "n1", "mark", ["Welcome to n1", "mark", "mark rank 3", "mark handler", "rank 1 2 3 S - - 1 x"]
    )
    assert (read.ranks, read.complete, read.world_size) == ([], False, 0)


def test_the_world_and_processes_without_a_number() -> None:
    read = answer("rank - 0 71 S - - 1 python", "rank 1 8 72 S - - 1 python", "over")
    assert (read.world_size, read.complete) == (8, True)
    assert [(rank.rank, rank.waits_in) for rank in read.ranks] == [(None, None), (1, None)]


@pytest.mark.parametrize(
    ("process", "lines", "reason", "lacks"),
    [
        ("rank 3 8 70 Z - - 1 python", [], "its process is dead", None),
        ("rank 3 8 70 S do_wait - 0 solver", [], "it is not a Python process, but solver", None),
        (None, [], "its host did not get to it in time", None),
        (
            None,
            ["missing 3 70 py-spy"],
            "no py-spy on its host; its program has no handler that writes stacks",
            "py-spy",
        ),
        (
            None,
            ["missing 3 70 py-spy", "note 3 70 it was asked and wrote none"],
            "no py-spy on its host; it was asked and wrote none",
            "py-spy",
        ),
        (
            None,
            ["ptrace 1", "refused 3 70 Permission Denied: Try running again with elevated permissions"],
            "py-spy may not read its memory (kernel.yama.ptrace_scope is 1)",
            "permission",
        ),
        (
            None,
            ["ptrace -", "refused 3 70 Error: Operation not permitted (os error 1)"],
            "py-spy may not read its memory",
            "permission",
        ),
        (
            None,
            ["refused 3 70 Error: Failed to find python version"],
            "py-spy failed: Error: Failed to find",
            None,
        ),
    ],
)
def test_why_there_is_none(process: str | None, lines: list[str], reason: str, lacks: str | None) -> None:
    rank = only(*lines, **({"process": process} if process else {}))
    assert rank.threads == [] and rank.source is None
    assert rank.reason and rank.reason.startswith(reason)
    assert rank.lacks == lacks


def test_its_state_in_words() -> None:
    for process, words in (
        ("S futex_wait_queue", "waiting for a lock or another thread (futex_wait_queue)"),
        (
            "D nfs_wait_bit_killable",
            "in state D, which no signal interrupts, waiting for the file system (nfs_w",
        ),
        ("S ep_poll", "waiting for other processes (ep_poll)"),
        ("S unheard_of", "waiting (unheard_of)"),
        ("T do_signal_stop", "stopped (state T), waiting (do_signal_stop)"),
        ("R -", ""),
    ):
        assert only(process=f"rank 3 8 70 {process} - 1 python").condition.startswith(words)
    assert only("kernel 3 70 [<0>] nfs_wait_bit_killable+0x2f/0xa0").kernel == [
        "nfs_wait_bit_killable+0x2f/0xa0"
    ]
