"""Workers that are safely forked from a process with threads.

Right after a fork Python takes an internal lock in the child. If another thread of the parent held it, the
child sleeps forever, and its rank waits for batches that never come: a bug of CPython before 3.10.15 and
3.11.10 (github.com/python/cpython/issues/112275). Gloo's threads take this lock when they release a completed
collective.
"""

from __future__ import annotations

from multiprocessing import Pipe, popen_fork
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.process import BaseProcess
from pathlib import Path

_LOOK_EVERY = 0.05
_LOOKS = 20
"""Checks (1 s in all) in which a child sleeps before it counts as stuck: it may also wait for a page of its
program from a slow file system."""


class _Process(ForkProcess):
    """A process that is forked again if the child sleeps before its first line, when nothing is lost yet."""

    _pipe: tuple[Connection, Connection]

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> popen_fork.Popen:
        assert isinstance(process_obj, _Process)
        while True:
            reads, writes = process_obj._pipe = Pipe(duplex=False)
            with reads, writes:
                child = popen_fork.Popen(process_obj)
                if _begins(child.pid, reads):
                    return child
            child.kill()
            child.wait()
            child.close()

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        reads, writes = self._pipe
        with reads, writes:
            writes.send_bytes(b"begun")
        code: int = super()._bootstrap(parent_sentinel)  # type: ignore[misc]
        return code

    def terminate(self) -> None:
        """Kill the process: a worker ignores TERM, and a loader that ends one waits for it afterwards."""
        self.kill()


class Forking(ForkContext):
    """multiprocessing's context `fork`, with processes that do not get stuck at their start."""

    Process = _Process


def _begins(pid: int, begun: Connection) -> bool:
    """Whether a child reaches its first line or has ended; False: it is stuck before."""
    asleep = 0
    while asleep < _LOOKS:
        state = _state(pid)
        if begun.poll(_LOOK_EVERY) or state == "Z":
            return True
        asleep = asleep + 1 if state == "S" else 0
    return False


def _state(pid: int) -> str:
    """A process's state as in proc(5): S is sleeping, Z is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # not Linux
        return ""
    return stat.rpartition(")")[2].split()[0]
