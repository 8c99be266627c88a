"""Detects that a job's only rank waits for other ranks that nobody starts.

Libraries that count devices cause this, such as Lightning with `devices=2` if RANK is set: they wait in
torch's rendezvous, without a message. torch names its threads: the store's thread exists when the rendezvous
has begun, and a process group's thread when it has ended.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from castoff.launcher.launchers.local.processes import children

FIRST_LOOK = 2.0
"""Seconds from the rank's start until its processes are first inspected; each further pause is twice
as long.
"""
_LONGEST = 16.0  # the most seconds between two inspections
_AGAIN = 4.0  # seconds until the process is inspected again if it may be waiting for other ranks

_STORE = "pt_tcpstore"
_GROUPS = ("pt_gloo", "pt_nccl", "pt_xccl", "pt_mpi")
_TRACKER = b"multiprocessing.resource_tracker"
_IDLE = 0.05  # the largest share of a core that a waiting process uses

HINT = (
    "the only rank waits for others in torch's rendezvous, but nobody starts any: the job has WORLD_SIZE=1. "
    "Start as many as the program expects (castoff launch -n 2, or ranks_per_node in the job file). If it "
    "starts its own, as Lightning does with devices=2, have castoff run it once, without RANK: "
    "--set launcher.driver=true"
)


class LoneRank:
    """Inspects the only rank's processes until it is known whether the rank waits for others."""

    def __init__(self, rank: int, now: float):
        self._rank = rank
        self._wait = FIRST_LOOK
        self._before: dict[int, float] = {}
        self.due: float | None = now + self._wait
        """When to inspect the processes next; None: never again."""

    def look(self, now: float) -> str | None:
        """Return the message for the user, once; None: there is none."""
        waiting = {pid: cpu_seconds(pid) for pid in meeting(self._rank)}
        most = _IDLE * self._wait
        pids = waiting.keys() & self._before.keys()
        is_waiting = any(waiting[pid] - self._before[pid] <= most for pid in pids)
        self._before, self._wait = waiting, _AGAIN if waiting else min(2 * self._wait, _LONGEST)
        self.due = None if is_waiting else now + self._wait
        return HINT if is_waiting else None


def meeting(rank: int) -> list[int]:
    """Return a rank's processes that have begun a rendezvous and are not in a process group yet.

    A process whose children run the same program is left out: torchrun has a store for its own ranks. Other
    children, such as Open MPI's orted if mpi4py is loaded, or wandb's service, are not ranks.
    """
    return [pid for pid in _tree(rank) if _meets(_threads(pid)) and not any(_workers(pid))]


def _meets(threads: Collection[str]) -> bool:
    return any(thread.startswith(_STORE) for thread in threads) and not any(
        thread.startswith(_GROUPS) for thread in threads
    )


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _tree(child)


def _workers(pid: int) -> Iterator[int]:
    """Yield a process's children that run the same interpreter, except Python's resource tracker."""
    for child in children(pid):
        folder = Path(f"/proc/{child}")
        with contextlib.suppress(OSError):  # it has ended
            is_same = (folder / "exe").samefile(f"/proc/{pid}/exe")
            if is_same and _TRACKER not in (folder / "cmdline").read_bytes():
                yield child


def _threads(pid: int) -> list[str]:
    with contextlib.suppress(OSError):  # it has ended
        return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
    return []


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used; 0 if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
