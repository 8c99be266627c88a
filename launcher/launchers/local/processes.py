"""Descendants of the ranks: castoff finds and ends all of them.

Three mechanisms together leave no process behind. The launcher is the sub-reaper of its descendants (Linux),
so that a program that makes itself a daemon becomes its child instead of escaping to init. Trees are ended by
TERM, then KILL, again and again until no process is left. And an orphan reaper, a shell that waits in a read,
ends the ranks if the launcher itself is killed: its own code cannot do that, and PR_SET_PDEATHSIG would need
code between fork and exec, which is neither safe nor fast in Python.

The orphan reaper then runs this file by its path, which is why it imports only the standard library and
psutil.
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
"""Seconds between TERM and KILL, so that everything is over within 5 s."""

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
"""The variable by which an orphan reaper recognizes a rank before it has its process id."""


class OrphanReaper:
    """Ends the ranks if this process dies without doing so itself.

    It has its own session and reads from a pipe that only this process writes to. When the pipe ends, it ends
    all processes that are in the ranks' sessions, have its mark, or descend from one of these.
    """

    def __init__(self) -> None:
        """Start the reaper.

        Raises:
            OSError: /bin/sh cannot be started.
        """
        program = str(Path(__file__).resolve())
        mark = os.urandom(16).hex()
        self.environment = {GUARDED: mark}
        """The variables that each rank has in its environment."""
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
        """Guard the rank with this process id, which is also its session's id."""
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
        """Children of this process that are not the ranks'."""
        self.ranks: set[int] = set()
        """Children that this process waits for itself."""
        self.agent: int | None = None
        """The process of which the ranks are copies, if any; each copy has a client among `ranks`."""
        self.copies: set[int] = set()
        """The copies whose clients `members` has seen."""
        self._was_subreaper = become_subreaper()

    def close(self) -> None:
        """Stop adopting orphans, if this object started it."""
        become_subreaper(self._was_subreaper)

    def reap(self) -> bool:
        """Reap adopted children that have died; returns whether any child of the ranks still lives.

        The children of an agent count, too: they are what ranks leave behind.
        """
        while True:
            alive, reaped = bool(self.agent and children(self.agent)), False
            for pid in children() - self.foreign - self.ranks - {self.agent}:
                with contextlib.suppress(ChildProcessError):
                    ended = os.waitpid(pid, os.WNOHANG)[0] == pid
                    alive, reaped = alive or not ended, reaped or ended
            if not reaped:  # otherwise look again: a process that ended may have left a child
                return alive

    def members(self) -> list[psutil.Process]:
        """Every living process that belongs to the ranks, including the ranks.

        If the ranks run as copies of an agent, their clients are listed in place of the copies as long as
        any client lives: a client forwards the signals that it gets.
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
    """A process's children, their children and so on; empty if the process is gone."""
    import psutil

    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _guarded(leaders: Collection[int], mark: str) -> Iterator[psutil.Process]:
    """Yield the processes in the sessions of `leaders` or with the mark, and their descendants."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):  # gone, or another user's
            if os.getsid(process.pid) in leaders or process.environ().get(GUARDED) == mark:
                yield from (process, *descendants(process))


def children(parent: int | None = None) -> set[int]:
    """Return the children of this process or another, also dead ones; psutil is slow, and a last resort."""
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
    """A process by its id; None if it is gone."""
    import psutil

    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def become_subreaper(adopts: bool = True) -> bool:
    """Start or stop adopting orphaned descendants (Linux); returns whether this was on before."""
    import ctypes

    set_child_subreaper, get_child_subreaper = 36, 37
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int(0)
    prctl(get_child_subreaper, ctypes.byref(before), 0, 0, 0)
    prctl(set_child_subreaper, int(adopts), 0, 0, 0)
    return bool(before.value)


@contextlib.contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Run this thread, and what it starts meanwhile, on `cores` only; empty: no change.

    Cores that the system does not allow are left out: it may have taken some away a moment ago.
    """
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # slow is better than not at all
        os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def shares(most: int, needed: int) -> list[list[int]]:
    """Divide this machine's cores among as many programs as fit side by side.

    `most`: the largest number of programs. Each needs `needed` cores, but one always fits. Empty lists: the
    programs need not be bound.
    """
    cores = allowed_cores()
    usable = min(len(cores), _quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))
    count = max(1, min(most, usable // needed))
    width = len(cores) // count if count > 1 else 0
    return [cores[place * width : (place + 1) * width] for place in range(count)]


def _quota(root: Path, own: Path) -> int:
    """Return for how many cores the control groups (version 2) give this process time; at least 1."""
    allowed = [sys.maxsize]
    with contextlib.suppress(OSError):
        name = own.read_text().rpartition("0::/")[2].strip()
        for folder in (root / name, *(root / name).parents):  # all limits hold, so the lowest counts
            with contextlib.suppress(OSError, ValueError):  # there is none, or it says `max`
                quota, period = map(int, (folder / "cpu.max").read_text().split())
                allowed.append(max(1, quota // period))
    return min(allowed)


def allowed_cores() -> list[int]:
    """The cores that this process may use, hardware threads of a core next to each other."""
    return sorted(os.sched_getaffinity(0), key=_place)


def _place(cpu: int) -> tuple[int, int, int]:
    """Return the sort key of a CPU: its socket, the first hardware thread of its core, and itself."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        socket = int((topology / "physical_package_id").read_text())
        siblings = (topology / "thread_siblings_list").read_text()
        return socket, int(siblings.replace("-", ",").split(",")[0]), cpu
    except (OSError, ValueError):
        return 0, cpu, cpu


def end_all(find: Callable[[], Collection[psutil.Process]], grace: float) -> bool:
    """End everything that `find` returns, by TERM and, after `grace` seconds, by KILL; returns whether
    nothing is left."""
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
    """End the processes in the sessions of `leaders` or with the mark, when the orphan reaper calls this."""
    known: set[psutil.Process] = set()

    def find() -> list[psutil.Process]:
        known.update(_guarded(leaders, mark), *map(descendants, known))
        return [process for process in known if _lives(process)]

    end_all(find, grace)


if __name__ == "__main__":
    _end_ranks(float(sys.argv[1]), sys.argv[2], {int(pid) for pid in sys.argv[3:]})
