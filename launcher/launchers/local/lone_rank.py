"""Whether a job's only rank waits for others, which nobody starts.

Libraries that count devices do, as Lightning with `devices=2` where RANK is set: they wait in torch's
rendezvous, in silence. torch names its threads: the store's is there as soon as ranks meet, a process group's
once all have met.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from castoff.launcher.launchers.local.processes import children

FIRST_LOOK = 2.0
"""Seconds from the rank's start to the first look; each further look waits twice as long."""
_LONGEST = 16.0  # that a look waits
_AGAIN = 4.0  # and one after what may wait for others

_STORE = "pt_tcpstore"
_GROUPS = ("pt_gloo", "pt_nccl", "pt_xccl", "pt_mpi")
_TRACKER = b"multiprocessing.resource_tracker"
_IDLE = 0.05  # the share of a core that a process takes at most while it waits

HINT = (
    "the only rank waits for others in torch's rendezvous, but nobody starts any: the job has WORLD_SIZE=1. "
    "Start as many as the program expects (castoff launch -n 2, or ranks_per_node in the job file). If it "
    "starts its own, as Lightning does with devices=2, have castoff run it once, without RANK: "
    "--set launcher.driver=true"
)


class LoneRank:
    """Looks at the only rank's processes until it is known whether it waits for others."""

    def __init__(self, rank: int, now: float):
        self._rank = rank
        self._wait = FIRST_LOOK
        self._before: dict[int, float] = {}
        self.due: float | None = now + self._wait
        """When to look next; None: never again."""

    def look(self, now: float) -> str | None:
        """The message for the user, once."""
        waiting = {pid: cpu_seconds(pid) for pid in meeting(self._rank)}
        most = _IDLE * self._wait
        found = any(waiting[pid] - self._before[pid] <= most for pid in waiting.keys() & self._before.keys())
        self._before, self._wait = waiting, _AGAIN if waiting else min(2 * self._wait, _LONGEST)
        self.due = None if found else now + self._wait
        return HINT if found else None


def meeting(rank: int) -> list[int]:
    """The processes of a rank that have begun a rendezvous and are in no process group yet.

    One with children that run the same program is not meant: torchrun keeps a store for its own ranks. Other
    children, such as Open MPI's orted where mpi4py is loaded, or wandb's, are no ranks.
    """
    return [pid for pid in _tree(rank) if _meets(_threads(pid)) and not any(_workers(pid))]


def _meets(threads: Collection[str]) -> bool:
    return any(thread.startswith(_STORE) for thread in threads) and not any(
        one.startswith(_GROUPS) for one in threads
    )


def _tree(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _tree(child)


def _workers(pid: int) -> Iterator[int]:
    """Its children that run the same interpreter, except Python's resource tracker."""
    for child in children(pid):
        its = Path(f"/proc/{child}")
        with contextlib.suppress(OSError):  # it has ended
            if (its / "exe").samefile(f"/proc/{pid}/exe") and _TRACKER not in (its / "cmdline").read_bytes():
                yield child


def _threads(pid: int) -> list[str]:
    with contextlib.suppress(OSError):  # it has ended
        return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]
    return []


def cpu_seconds(pid: int) -> float:
    """The CPU seconds that a process has used; 0 if it has ended."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
