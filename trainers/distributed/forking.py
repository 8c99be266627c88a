"""Workers that are safely forked from a process with threads.

Python takes a lock of its own in the child right after a fork. Where another thread of the parent held it,
the child sleeps for ever, and its rank waits for batches that never come: a bug of CPython before 3.10.15
and 3.11.10 (github.com/python/cpython/issues/112275). Threads of gloo take that lock whenever they let go of
a collective that is done.
"""

from __future__ import annotations

from multiprocessing import Pipe, popen_fork
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkProcess
from multiprocessing.process import BaseProcess
from pathlib import Path

_LOOK_EVERY = 0.05
_LOOKS = 20
"""Longer than a child may sleep because a page of its program comes from a slow file system."""


class _Process(ForkProcess):
    """Forked anew for as long as the child falls asleep before its first line, where nothing is lost yet."""

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
        """Kill it: a worker ignores TERM, and a loader that must end one waits for it after this."""
        self.kill()


class Forking(ForkContext):
    """The context `fork` of multiprocessing, with processes that begin."""

    Process = _Process


def _begins(pid: int, given: Connection) -> bool:
    """Whether a child comes to its first line, or has ended; False: it sleeps before that."""
    asleep = 0
    while asleep < _LOOKS:
        state = _state(pid)
        if given.poll(_LOOK_EVERY) or state == "Z":
            return True
        asleep = asleep + 1 if state == "S" else 0
    return False


def _state(pid: int) -> str:
    """As in proc(5): S is a sleep that only others end, Z a process that has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # no Linux
        return ""
    return stat.rpartition(")")[2].split()[0]
