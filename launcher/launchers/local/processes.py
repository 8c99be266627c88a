"""Descendants of the ranks: castoff finds and ends all of them.

Three mechanisms together leave no process behind. First, the launcher is the sub-reaper of its descendants
(Linux), so that a program that makes itself a daemon becomes the launcher's child instead of escaping to
init. Second, process trees are ended by TERM, then KILL, repeatedly until no process is left. Third, an
orphan reaper, a shell that waits in a read, ends the ranks if the launcher is killed: the launcher cannot do
that then, and PR_SET_PDEATHSIG would need code between fork and exec, which is neither safe nor fast in
Python.

The orphan reaper runs this file by its path, so this file imports only the standard library and psutil.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported late: it would be a tenth of a start's time
    import psutil

GRACE = 3.0
"""Seconds between TERM and KILL; few enough for all processes to be gone within 5 s."""

_KILL_PATIENCE = 10.0
"""Seconds after which processes that were sent KILL are gone, unless they hang in the kernel."""

_POLL = 0.05

_ORPHAN_REAPER = """\
trap '' HUP INT TERM
ranks=
while read -r word; do
  case $word in done) exit 0 ;; *) ranks="$ranks $word" ;; esac
done
exec "$1" -I "$2" "$3" "$4" $ranks
"""

GUARDED = "CASTOFF_GUARDED"
"""The variable that marks a rank for the orphan reaper, which may not know the rank's process id yet."""


class OrphanReaper:
    """Ends the ranks if this process dies without ending them itself.

    The reaper has its own session and reads from a pipe that only this process writes to. When the pipe is
    closed, the reaper ends all processes that are in the ranks' sessions or have its mark, and their
    descendants.
    """

    def __init__(self) -> None:
        """Start the reaper.

        Raises:
            OSError: /bin/sh cannot be started.
        """
        program = str(Path(__file__).resolve())
        mark = os.urandom(16).hex()
        self.environment = {GUARDED: mark}
        """Variables that must be in each rank's environment."""
        self._process = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _ORPHAN_REAPER,
                "castoff-orphan-reaper",
                sys.executable,
                program,
                str(GRACE),
                mark,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def watch(self, rank: int) -> None:
        """Guard the rank with this process id, which is also the id of the rank's session."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody killed it
            self._process.stdin.write(b"%d\n" % rank)

    def dismiss(self) -> None:
        """End the reaper: there is nothing left to guard."""
        self._process.communicate(b"done\n")


class ProcessTree:
    """All descendants of the ranks.

    Earlier children of this process do not count as the ranks' descendants; all later ones do. So a program
    that starts ranks should not start other processes meanwhile.
    """

    def __init__(self) -> None:
        self.foreign = children()
        """Children of this process that do not belong to the ranks."""
        self.ranks: set[int] = set()
        """The ranks' processes, for which other code waits."""
        self.agent: int | None = None
        """The agent of which the ranks are copies, if any; each copy has a client among `ranks`."""
        self.copies: set[int] = set()
        """The copies whose clients `members` has seen."""
        self._was_subreaper = become_subreaper()

    def close(self) -> None:
        """Stop adopting orphans, if this object started it."""
        become_subreaper(self._was_subreaper)

    def reap(self) -> bool:
        """Reap adopted children that have died; return whether any child of the ranks is still alive.

        The children of an agent count, too: they are what ranks leave behind.
        """
        while True:
            alive, reaped = bool(self.agent and children(self.agent)), False
            for pid in children() - self.foreign - self.ranks - {self.agent}:
                with contextlib.suppress(ChildProcessError):
                    ended = os.waitpid(pid, os.WNOHANG)[0] == pid
                    alive, reaped = alive or not ended, reaped or ended
            if not reaped:  # otherwise check again: a process that ended may have left a child
                return alive

    def members(self) -> list[psutil.Process]:
        """Return every living process that belongs to the ranks, including the ranks.

        If the ranks are copies of an agent, their clients are listed instead of the copies as long as any
        client is alive: a client forwards signals to its copy.
        """
        import psutil

        processes = {process.pid: process for process in psutil.Process().children(recursive=True)}
        for pid in self.foreign & processes.keys():
            for process in [processes[pid], *descendants(processes[pid])]:
                processes.pop(process.pid, None)
        if self.agent and (agent := process_of(self.agent)):
            self.copies.update(filter(None, map(program_of, self.ranks & processes.keys())))
            processes |= {process.pid: process for process in descendants(agent)}
            copies = children(agent.pid) if self.ranks & processes.keys() else set()
            processes = {
                pid: process for pid, process in processes.items() if pid not in {agent.pid, *copies}
            }
        return [process for process in processes.values() if _lives(process)]


def program_of(client: int) -> int | None:
    """Return the process that runs a client's program, from the name that the client has given itself."""
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/{client}/comm").read_text().partition("castoff:")[2])
    return None


def send(processes: Iterable[psutil.Process], number: int) -> None:
    """Send signal `number` to each process that still exists and may be signalled."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(process: psutil.Process) -> list[psutil.Process]:
    """Return a process's children, their children and so on; empty if the process is gone."""
    import psutil

    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _guarded(leaders: Collection[int], mark: str) -> Iterator[psutil.Process]:
    """Yield the processes in the sessions of `leaders` or with the reaper's mark, and their descendants."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):  # gone, or another user's
            if os.getsid(process.pid) in leaders or process.environ().get(GUARDED) == mark:
                yield from (process, *descendants(process))


def children(parent: int | None = None) -> set[int]:
    """Return the children of this or another process, including dead children; psutil is slow, and a last
    resort.
    """
    tasks = Path(f"/proc/{parent or 'self'}/task")
    try:
        texts = [(task / "children").read_text() for task in tasks.iterdir()]
    except OSError:  # no such file on this system (CONFIG_PROC_CHILDREN), or a thread or process that ended
        import psutil

        try:
            return {child.pid for child in psutil.Process(parent).children()}
        except psutil.NoSuchProcess:
            return set()
    return {int(pid) for text in texts for pid in text.split()}


def process_of(pid: int) -> psutil.Process | None:
    """Return a process by its id; None if the process is gone."""
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def become_subreaper(adopts: bool = True) -> bool:
    """Start or stop adopting orphaned descendants (Linux); return whether this process adopted them
    before.
    """
    import ctypes

    set_child_subreaper, get_child_subreaper = 36, 37
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(get_child_subreaper, ctypes.byref(before), 0, 0, 0)
    prctl(set_child_subreaper, int(adopts), 0, 0, 0)
    return bool(before.value)


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Restrict this thread, and processes that it starts in this context, to `cores`; empty: no change.

    Cores that the system does not allow are left out: the allowed set may have shrunk a moment ago.
    """
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # slow is better than not at all
        os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def shares(most: int, needed: int) -> list[list[int]]:
    """Divide this machine's cores among as many programs as fit at the same time.

    `most`: the largest number of programs. Each program needs `needed` cores, but one program always fits.
    Empty lists: the programs need not be bound.
    """
    cores = allowed_cores()
    usable = min(len(cores), _quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))
    count = max(1, min(most, usable // needed))
    width = len(cores) // count if count > 1 else 0
    return [cores[place * width : (place + 1) * width] for place in range(count)]


def _quota(root: Path, own: Path) -> int:
    """Return the number of cores that the CPU quota of the control groups (version 2) amounts to; at
    least 1.
    """
    allowed = [sys.maxsize]
    with contextlib.suppress(OSError):
        name = own.read_text().rpartition("0::/")[2].strip()
        for folder in (root / name, *(root / name).parents):  # every limit applies, so the lowest counts
            with contextlib.suppress(OSError, ValueError):  # there is no limit, or it is `max`
                quota, period = map(int, (folder / "cpu.max").read_text().split())
                allowed.append(max(1, quota // period))
    return min(allowed)


def allowed_cores() -> list[int]:
    """Return the cores that this process may use, with a core's hardware threads next to each other."""
    return sorted(os.sched_getaffinity(0), key=_place)


def _place(cpu: int) -> tuple[int, int, int]:
    """Return the sort key of a CPU: its socket, the first hardware thread of its core, and its own number."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        socket = int((topology / "physical_package_id").read_text())
        siblings = (topology / "thread_siblings_list").read_text()
        return socket, int(siblings.replace("-", ",").split(",")[0]), cpu
    except (OSError, ValueError):
        return 0, cpu, cpu


def end_all(find: Callable[[], Collection[psutil.Process]], grace: float) -> bool:
    """End all processes that `find` returns, by TERM and, after `grace` seconds, by KILL; return whether none
    is left.
    """
    import psutil

    signalled = set[psutil.Process]()
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_PATIENCE)):
        begun = time.monotonic()
        while (left := find()) and time.monotonic() - begun <= patience:
            send(left if number == signal.SIGKILL else {*left} - signalled, number)
            signalled.update(left)
            psutil.wait_procs(left, timeout=_POLL)
    return not left


def _end_ranks(grace: float, mark: str, leaders: Collection[int]) -> None:
    """End the processes in the sessions of `leaders` or with the reaper's mark; the orphan reaper
    runs this.
    """
    known: set[psutil.Process] = set()

    def find() -> list[psutil.Process]:
        known.update(_guarded(leaders, mark), *map(descendants, known))
        return [process for process in known if _lives(process)]

    end_all(find, grace)


if __name__ == "__main__":
    _end_ranks(float(sys.argv[1]), sys.argv[2], {int(pid) for pid in sys.argv[3:]})
