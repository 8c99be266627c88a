"""The stacks of ranks as text for people. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from castoff.launcher.stacks.answers import RankStack
from castoff.launcher.stacks.collecting import Collected
from castoff.launcher.stacks.frames import Frame, Thread
from castoff.launcher.stacks.grouping import Group, numbers
from castoff.launcher.text.words import counted, listed, moment

_MOST_GROUPS = 20
"""Limit of the groups that are shown: ranks that compute may all be at different places."""

_HOSTS = 3
"""Limit of the hosts that are named for a group."""

_LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+)/")
"""What precedes a library's path."""


_HANDLER = (
    "have the program write its stacks on SIGQUIT (three lines: see CASTOFF_STACK_DIR in castoff's "
    "documentation)"
)


def summary(run: str, found: Collected) -> str:
    """The line above the stacks: how many there are, and of when."""
    hosts = {rank.host for rank in found.ranks}
    member = f", member {found.member}" if found.is_array else ""
    what = "rank" if all(rank.rank is not None for rank in found.ranks) else "process"
    count = counted(len(found.ranks), what, "processes" if what == "process" else "")
    on = f" on {counted(len(hosts), 'host')}" if hosts else ""
    return f"{run}{member}: {count}{on} at {moment(found.time)}"


def notes_on(run: str, found: Collected) -> Iterator[str]:
    """Sentences about what is missing, and what would help."""
    reasons: dict[str, list[str]] = {}
    for one in found.unanswered:
        reasons.setdefault(one.reason, []).append(one.host)
    for reason, hosts in reasons.items():
        yield f"{listed(hosts, 8)}: no answer: {reason}"
    if found.over:
        yield f"{_ranks(found.over)} ended well"
    if found.missing:
        yield (
            f"{_ranks(found.missing)}: no process found: not started yet, or ended "
            f"(castoff logs {run} --rank {found.missing[0]})"
        )
    without = [rank for rank in found.ranks if not rank.threads]
    if any(rank.lacks == "py-spy" for rank in without):
        yield f"for the missing stacks, install py-spy into the job's environment or castoff's, or {_HANDLER}"
    if any(rank.lacks == "permission" for rank in without):
        yield f"this host lets no process read another's memory; {_HANDLER}"


def lines_of(groups: Sequence[Group], folder: str) -> Iterator[str]:
    """The lines that show groups. `folder`: its files are shown by their paths below it."""
    shown = groups if len(groups) <= _MOST_GROUPS else [*groups[: _MOST_GROUPS - 1], groups[-1]]
    for number, group in enumerate(shown):
        if number and number == len(shown) - 1 < len(groups) - 1:
            yield f"… {counted(len(groups) - len(shown), 'more group')}: --rank N and --json show them"
            yield ""
        yield f"{_heading(group)}:"
        yield from _stack(group.first, folder)
        yield ""


def _heading(group: Group) -> str:
    """The ranks of a group, where they are, and what all of them wait for."""
    ranks = [rank.rank for rank in group.ranks if rank.rank is not None]
    hosts = [*dict.fromkeys(rank.host for rank in group.ranks)]
    where = listed(hosts, _HOSTS)
    if not ranks:
        number = len(group.ranks)
        words = f"process {group.first.pid}" if number == 1 else f"{number:,} processes"
        words += f" on {where}"
    else:
        words = f"{_ranks(ranks)} on {where}" + (
            f", process {group.first.pid}" if len(group.ranks) == 1 else ""
        )
    conditions = {rank.condition for rank in group.ranks}
    condition = conditions.pop() if len(conditions) == 1 else ""
    return f"{words}, {condition}" if condition else words


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {numbers(ranks)}"


def _stack(rank: RankStack, folder: str) -> Iterator[str]:
    if not rank.threads:
        yield f"    no stack: {rank.reason}"
        yield from (f"    {function}" for function in rank.kernel)
    for number, thread in enumerate(rank.threads):
        if number:
            yield f"  {_title(thread)}:"
        yield from (f"    {_place(frame, folder)}" for frame in thread.frames)
        if not thread.frames:
            yield "    no Python call"


def _title(thread: Thread) -> str:
    return f"thread {thread.name}" if thread.name else "another thread"


def _place(frame: Frame, folder: str) -> str:
    """A call, as `function (file:line)`."""
    file = frame.file.removeprefix(f"{folder.rstrip('/')}/")
    return f"{frame.function} ({_LIBRARY.sub('', file)}:{frame.line or '?'})"
