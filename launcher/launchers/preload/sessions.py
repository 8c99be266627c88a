"""Ends all processes that a rank has started, by what the kernel reports about each process."""

import contextlib
import os
import signal

TYPE_CHECKING = False  # `typing` would cost each start some time
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_TIMES = 20
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants of this process (Linux)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(own: "Collection[int]") -> None:
    """Reap adopted children that have ended, but none of this process's own children."""
    with contextlib.suppress(ChildProcessError):  # this process has no children
        while True:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if dead is None or dead.si_pid in own:  # `own` children are reaped with their clients
                return
            os.waitpid(dead.si_pid, 0)


def end_sessions(leaders: "Collection[int]") -> None:
    """Kill programs that each lead a session, all processes in those sessions, and all descendants of
    these.
    """
    targets = {*leaders}
    for _ in range(_TIMES):  # a process may have started another just before it was killed
        processes = dict(_processes())
        before = -1
        while before != len(targets):
            before = len(targets)
            targets |= {
                pid for pid, (parent, session) in processes.items() if parent in targets or session in targets
            }
        alive = targets & processes.keys()
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not alive:
            return


def _processes() -> "Iterator[tuple[int, tuple[int, int]]]":
    """Yield each living process with its parent and its session."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                file = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                try:
                    words = os.read(file, 4096).rpartition(b")")[2].split()
                finally:
                    os.close(file)
                if words and words[0] not in (b"Z", b"X"):
                    yield int(name), (int(words[1]), int(words[3]))
